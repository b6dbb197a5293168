import json

import pytest

from scpo.envs.webshop import load_catalogue
from scpo.errors import CatalogueError
from tests.support.webshop_data import options, record, small_catalogue


def write(folder, items, mined=None, suffix="_1000"):
    folder.mkdir(exist_ok=True)
    (folder / f"items_shuffle{suffix}.json").write_text(items if isinstance(items, str) else json.dumps(items))
    (folder / f"items_ins_v2{suffix}.json").write_text(json.dumps(mined or {}))
    return folder


def test_the_small_file_is_preferred_to_the_full_one(tmp_path):
    write(tmp_path, [record("B1"), record("B2")], suffix="")
    assert len(load_catalogue(tmp_path)) == 2
    write(tmp_path, [record("B1")])
    assert len(load_catalogue(tmp_path)) == 1


def test_records_that_the_original_skips_are_skipped(tmp_path):
    write(tmp_path, [record("B1"), record("B1"), record("nan"), record("B1234567890")])
    assert [product.asin for product in load_catalogue(tmp_path).products] == ["B1"]


def test_prices_and_options_are_read_as_the_original_reads_them():
    changes = {
        "pricing": "$1,299.50 to $1,400",
        "customization_options": options(size=[" A/B ", "C"]) | {"Color": None},
    }
    (product,) = small_catalogue([record("B1", **changes)], {}).products
    assert (product.prices, product.price_tag) == ((1299.5, 1400.0), "$1299.5 to $1400.0")
    assert product.options == {"size": ("a | b", "c")}
    (unpriced,) = small_catalogue([record("B1", pricing=None)], {}).products
    assert (unpriced.prices, unpriced.price_tag, unpriced.attributes) == ((100.0,), "$100.0", ("DUMMY_ATTR",))


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("{]", "is not JSON"),
        ({"a": 1}, "should hold a JSON list, got dict"),
        ([], "holds no product"),
        ([7], "record 0: a product is an object, got int"),
        ([{"asin": "B1"}], "record 0: missing columns .*'name'"),
        ([record("B1", colour="red")], r"foreign columns \['colour'\], allowed are"),
        ([record("B1", name=3)], "column name has the wrong type, got int 3"),
        ([record("B1", pricing="free")], r"B1\): pricing is '\$<price>' .*got 'free'"),
        ([record("B1", pricing="$1.2.3")], "pricing is"),
        ([record("B1", customization_options={"Size": ["Small"]})], "customization_options maps a name"),
    ],
)
def test_a_file_of_another_format_is_a_clear_error(tmp_path, items, message):
    with pytest.raises(CatalogueError, match=message):
        load_catalogue(write(tmp_path, items))


def test_a_missing_file_is_a_clear_error(tmp_path):
    with pytest.raises(CatalogueError, match=r"no WebShop catalogue in .*items_shuffle_1000.json"):
        load_catalogue(tmp_path)
    with pytest.raises(CatalogueError, match="found no folder"):
        load_catalogue(tmp_path / "nowhere")
    (write(tmp_path, [record("B1")]) / "items_ins_v2_1000.json").unlink()
    with pytest.raises(CatalogueError, match=r"items_ins_v2_1000.json is missing"):
        load_catalogue(tmp_path)


def test_an_instruction_without_attributes_is_a_clear_error(tmp_path):
    with pytest.raises(CatalogueError, match="an instruction without instruction_attributes"):
        load_catalogue(write(tmp_path, [record("B1")], {"B1": {"attributes": [], "instruction": "Find me"}}))


def test_a_corrupt_human_file_is_a_clear_error(tmp_path):
    (write(tmp_path, [record("B1")]) / "items_human_ins.json").write_text('{"B1": [{"text": 1}]}')
    with pytest.raises(CatalogueError, match="instruction_attributes"):
        load_catalogue(tmp_path)
