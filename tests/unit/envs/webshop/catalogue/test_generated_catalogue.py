import random
import statistics
from collections import Counter

import pytest

from scpo.envs.webshop import load_catalogue
from scpo.envs.webshop.catalogue.generated_catalogue import generate, generated_catalogue
from scpo.envs.webshop.catalogue.goals import goal_order
from scpo.envs.webshop.catalogue.official_files import content_sha256, main, report, survey, write_generated
from scpo.errors import CatalogueError
from tests.support.webshop_data import official_files


@pytest.fixture(scope="module")
def catalogue():
    return generated_catalogue(0, 1000)


def test_the_catalogue_is_a_pure_function_of_its_seed(catalogue):
    random.seed(5)
    assert content_sha256(generated_catalogue(0, 1000)) == content_sha256(catalogue)
    assert content_sha256(generated_catalogue(1, 1000)) != content_sha256(catalogue)


def test_its_statistics_are_those_of_the_official_products(catalogue):
    products = catalogue.products
    assert Counter(product.category for product in products).keys() == {
        "beauty", "electronics", "fashion", "garden", "grocery",
    }  # fmt: skip
    assert len({product.query for product in products}) == 246
    assert statistics.mean(len(product.title) for product in products) == pytest.approx(117, abs=5)
    assert {len(product.options) for product in products} == {0, 1, 2, 3}
    assert statistics.median(len(values) for product in products for values in product.options.values()) == 4
    assert all(2 <= len(product.attributes) <= 6 for product in products)
    assert 9 <= min(product.prices[0] for product in products) < max(product.prices[0] for product in products) <= 200
    assert 0.06 < sum(len(product.prices) == 2 for product in products) / 1000 < 0.13
    assert len(goal_order(catalogue, 233, False)) > 1500


def test_it_can_be_written_in_the_official_format_and_read_again(tmp_path, catalogue):
    write_generated(tmp_path / "shop", 0, 1000)
    assert content_sha256(load_catalogue(tmp_path / "shop")) == content_sha256(catalogue)
    with pytest.raises(CatalogueError, match="is not overwritten"):
        write_generated(tmp_path / "shop", 0, 1000)


def test_a_small_catalogue_has_as_many_products_as_asked_for():
    items, attributes = generate(3, 20)
    assert len(items) == len(attributes) == 20


def test_the_data_check_lists_what_is_missing_and_never_downloads(tmp_path, capsys, monkeypatch):
    def refuse(*_):
        raise AssertionError("a download was tried")

    monkeypatch.setattr("socket.socket.connect", refuse)
    assert main([str(tmp_path)]) == 0
    text = capsys.readouterr().out
    assert text.count("missing") == 5
    assert text.count("https://drive.google.com/") == 5
    assert "cannot be used: no WebShop catalogue" in text
    assert main([str(tmp_path / "new"), "--generate", "--products", "50"]) == 0
    assert "can be used: 50 products" in capsys.readouterr().out


def test_a_file_that_differs_from_the_official_one_is_told(tmp_path):
    (tmp_path / "items_ins_v2_1000.json").write_text("{}")
    assert (
        "differs from the official file: sha256"
        in {file.name: state for file, state in survey(tmp_path)}["items_ins_v2_1000.json"]
    )


def test_the_official_files_are_recognised():
    told = report(official_files())
    assert "1000 products, 6910 synthetic goals; their content is the official 1,000 products" in told
    assert "items_ins_v2_1000.json  ok" in told
