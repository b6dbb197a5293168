"""What the WebShop tests share: where recorded data lies, and shops small enough to be worked by hand."""

import json
from pathlib import Path

import pytest

pytest.importorskip("rapidfuzz", reason="WebShop needs the extra webshop: pip install -e '.[webshop]'")
pytest.importorskip("nltk", reason="WebShop needs the extra webshop: pip install -e '.[webshop]'")

from scpo.envs.webshop import Catalogue, WebShop
from scpo.envs.webshop.catalogue.catalogue import HumanInstruction
from scpo.envs.webshop.catalogue.products import read_products

RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data" / "webshop"
needs_recorded = pytest.mark.skipif(not RECORDED.is_dir(), reason=f"recorded WebShop data is not at {RECORDED}")


def golden() -> list[dict]:
    return json.loads((RECORDED / "golden_episodes.json").read_text())


def record(asin: str, **changes) -> dict:
    values = {
        "asin": asin,
        "name": f"Plain Shoe {asin}",
        "full_description": "A shoe.",
        "small_description": ["Soft sole ", "Light"],
        "pricing": "$25.00",
        "customization_options": "",
        "product_category": "Clothing › Shoes › Sandals",
        "category": "fashion",
        "query": "men's sandals",
    }
    return values | changes


def options(**names: list[str]) -> dict:
    return {name.replace("_", " ").title(): [{"value": value} for value in values] for name, values in names.items()}


SHOES = [
    record("B000000001", name="Red Leather Shoe",
           customization_options=options(size=["Small", "Large"], color=["Red"])),
    record("B000000002", name="Blue Canvas Shoe", pricing="$8.00 to $30.00"),
    record("B000000003", name="Toaster", query="toasters", category="garden", product_category="Kitchen › Toasters",
           small_description="Toasts", full_description="", pricing="$985.00"),
]  # fmt: skip
MINED = {
    "B000000001": {
        "attributes": ["rubber sole", "leather"],
        "instruction": "Find me men's sandals with rubber sole",
        "instruction_attributes": ["rubber sole"],
    },
    "B000000003": {
        "attributes": [],
        "instruction": "Find me toasters",
        "instruction_attributes": ["stainless"],
    },
}
HUMAN = {"B000000002": (HumanInstruction("i want blue shoes.", ("canvas",), ("blue",)), HumanInstruction("x", (), ()))}


def small_catalogue(records: list[dict] | None = None, mined: dict | None = None) -> Catalogue:
    products = tuple(read_products(SHOES if records is None else records, MINED if mined is None else mined, "shoes"))
    return Catalogue(products, HUMAN, "shoes")


def small_shop(goal: int = 0) -> WebShop:
    shop = WebShop(small_catalogue(), 0, "all_tokens")
    index = next(i for i, wish in enumerate(shop.goals) if wish.asin == f"B00000000{goal + 1}")
    shop.reset(index)
    return shop
