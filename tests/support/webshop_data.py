"""What the WebShop tests share: recordings of the original engine, and shops small enough to be worked by hand."""

import functools
import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("rapidfuzz", reason="needs rapidfuzz: make setup")
pytest.importorskip("nltk", reason="needs nltk: make setup")

from scpo.envs.webshop import Catalogue, WebShop, load_catalogue
from scpo.envs.webshop.catalogue.catalogue import HumanInstruction, read_products
from tests.support.data_folders import DATA, shared, unpacked

OFFICIAL = "items_shuffle_1000.json"


@dataclass(frozen=True)
class Recording:
    """What the original engine did in a shop: ``folder`` holds the shop's files and ``golden_episodes.json``.

    ``prompts``: sha256 of verl-agent's prompts of these episodes, made with its own code (commit 796ed31).
    """

    name: str
    archive: Path | None
    goals: int
    human_goals: int
    searches: int
    prompts: str

    @functools.cached_property
    def folder(self) -> Path:
        return shared("data", "webshop") if self.archive is None else unpacked(self.archive)

    @functools.cached_property
    def episodes(self) -> list[dict]:
        return json.loads((self.folder / "golden_episodes.json").read_text(encoding="utf-8"))

    @functools.cached_property
    def catalogue(self) -> Catalogue:
        return load_catalogue(self.folder)

    def shop(self) -> WebShop:
        return WebShop(self.catalogue, 0, "all_tokens")


GENERATED = Recording(
    "generated", DATA / "webshop" / "golden.tar.xz", goals=774, human_goals=2, searches=100,
    prompts="4353cac14a73d96f02e379710b5bd4225a5e5c39789a89284b6f6250be2fe4a5",
)  # fmt: skip
REAL = Recording(
    "official 1,000 products", None, goals=6910, human_goals=13, searches=100,
    prompts="6044fa5985d244531d3f172140fdba2e89450aa4d9af10eb6feba4026b43593c",
)  # fmt: skip
RECORDINGS = [GENERATED, *([REAL] if shared("data", "webshop") else [])]
of_every_recording = pytest.mark.parametrize("recording", RECORDINGS, ids=lambda recording: recording.name)


def official_files() -> Path:
    """The folder of the official 1,000 products; without one the test is skipped."""
    folder = shared("data", "webshop") or Path(os.environ.get("WEBSHOP_DATA", ""))
    if not (folder / OFFICIAL).is_file():
        pytest.skip(
            "needs the official 1,000 products of WebShop: set WEBSHOP_DATA to their folder; "
            "`python -m scpo.envs.webshop` says where to get them"
        )
    return folder


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
