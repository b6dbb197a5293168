"""Records what the original WebShop engine answers on a generated catalogue: the golden files of this folder.

    python tests/data/webshop/record.py <WebShop> golden.tar.xz

``<WebShop>`` is a checkout of the original (its ``web_agent_site`` and ``search_engine``), in an environment that has
what it needs (README.md beside this file). The catalogue is a generated one with some records that are as untidy as
those of real shops; its texts are this project's own.
"""

import importlib.util
import json
import random
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from types import ModuleType
from unittest.mock import MagicMock

SEED, PRODUCTS, EPISODES, STEPS = 0, 300, 90, 15
PAGE_BUTTONS = ("back to search", "< prev", "description", "features", "reviews", "buy now")
FILES = ("items_shuffle_1000.json", "items_ins_v2_1000.json", "items_human_ins.json")


def untidy() -> tuple[list[dict], dict[str, dict], dict[str, list[dict]]]:
    """Items, attributes and human instructions with what the generated ones lack."""
    empty = {
        "full_description": "",
        "small_description": "",
        "customization_options": "",
        "pricing": "",
        "images": [""],
    }
    base = empty | {"average_rating": "", "category": "garden", "page": 1}
    mug = base | {
        "asin": "B0UNTIDY01", "name": "★ Men's & Women's 12oz Mug—w/ Lid (2-Pack), 10.5\" Tall! Café style <new>",
        "full_description": "It's the <b>best</b> mug &amp; fits 500g of tea.\n\nDr. Potter's, since 1999…",
        "small_description": ["Dishwasher-safe; microwave/oven safe ", "100% “hand-made”", ""],
        "customization_options": {
            "Color": [{"value": " Navy/White "}, {"value": "Off-White"}, {"value": "Wine Red"}],
            "Size": [{"value": "12 Oz / 350 Ml"}, {"value": "S"}], "Style": None,
        },
        "pricing": "$1,234.50", "product_category": "Home & Kitchen › Mugs › Travel Mugs", "query": " Travel Mugs ",
    }  # fmt: skip
    plain = base | {
        "asin": "B0UNTIDY02", "name": "the a of", "product_category": "Home & Kitchen › Mugs", "query": "travel mugs",
        "small_description": "running runner runs ran generously organization",
    }  # fmt: skip
    twice = mug | {"asin": "B0UNTIDY03", "pricing": "$989.00 to $2,000.00", "name": mug["name"].upper()}
    long = mug | {"asin": "B0UNTIDY0004"}
    tied = [plain | {"asin": f"B0UNTIDY1{i}", "name": "Walnut Spoon Rest", "pricing": f"${5 + i}.00"} for i in range(4)]
    attributes = {
        "B0UNTIDY01": {
            "attributes": ["dishwasher safe", "hand made", "wide"], "instruction_attributes": ["dishwasher safe"],
            "instruction": "Find me dishwasher safe travel mugs",
        },
        "B0UNTIDY03": {"attributes": [], "instruction": "Find me mugs", "instruction_attributes": ["microwave/oven"]},
        "B0UNTIDY10": {"attributes": ["walnut"], "instruction": "Find me a rest", "instruction_attributes": ["walnut"]},
    }  # fmt: skip
    human = {
        "B0UNTIDY01": [
            {"instruction": "i need a red mug that i can put into the dishwasher.",
             "instruction_attributes": ["dishwasher safe"], "instruction_options": ["wine red", "s"]},
            {"instruction": "a mug", "instruction_attributes": [], "instruction_options": []},
        ],
        "B0UNTIDY11": [{"instruction": "a spoon rest of walnut", "instruction_attributes": ["walnut", "heat resistant"],
                        "instruction_options": []}],
    }  # fmt: skip
    return [mug, plain, mug, twice, long, *tied], attributes, human


def write_catalogue(out: Path) -> None:
    """The three files in the official format."""
    from scpo.envs.webshop.catalogue.generated_catalogue import generate

    items, attributes = generate(SEED, PRODUCTS)
    items = [item | {"images": [""]} for item in items]  # the original shows the first one
    more, mined, human = untidy()
    for number, item in enumerate(more):
        items.insert(30 * number + 7, item)
    attributes |= {item["asin"]: {} for item in more} | mined
    for name, content in zip(FILES, (items, attributes, human), strict=True):
        (out / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def load_original(webshop: Path, out: Path) -> ModuleType:
    """The original's text environment on the files of ``out``, with all tokens of a title as its nouns."""
    import spacy

    blank = spacy.blank("en")

    def tagged(text: str) -> object:
        parsed = blank(text)
        for token in parsed:
            token.pos_ = "NOUN" if any(map(str.isalnum, token.text)) else "PUNCT"
        return parsed

    spacy.load = lambda name: tagged
    for absent in ("gym", "torch"):  # it takes a base class and a seed from them
        stub = ModuleType(absent)
        stub.Env, stub.manual_seed = object, lambda seed: None
        sys.modules[absent] = stub
    for dense in ("encode", "search.faiss", "search.hybrid"):  # retrieval by vectors, which WebShop does not use
        sys.modules[f"pyserini.{dense}"] = MagicMock()
    sys.path.insert(0, str(webshop))
    paths = importlib.import_module("web_agent_site.utils")
    paths.DEFAULT_FILE_PATH, paths.DEFAULT_ATTR_PATH, paths.HUMAN_ATTR_PATH = (str(out / name) for name in FILES)
    engine = importlib.import_module("web_agent_site.engine.engine")
    products, *_ = engine.load_products(paths.DEFAULT_FILE_PATH, paths.DEFAULT_ATTR_PATH, human_goals=False)
    _index(products, webshop / "search_engine")
    path = webshop / "web_agent_site" / "envs" / "web_agent_text_env.py"  # its package would load a browser
    spec = importlib.util.spec_from_file_location("web_agent_text_env", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _index(products: list[dict], folder: Path) -> None:
    """Lucene's index of the documents that ``convert_product_file_format.py`` makes."""
    (folder / "resources").mkdir(exist_ok=True)
    with (folder / "resources" / "documents.jsonl").open("w") as file:
        for product in products:
            options = ", and ".join(f"{name}: {', '.join(values)}" for name, values in product["options"].items())
            words = (product["Title"], product["Description"], product["BulletPoints"][0], options)
            file.write(json.dumps({"id": product["asin"], "contents": " ".join(words).lower()}) + "\n")
    words = ("--collection JsonCollection --input resources --index indexes --generator DefaultLuceneDocumentGenerator "
             "--threads 1 --storePositions --storeDocvectors --storeRaw")  # fmt: skip
    subprocess.run([sys.executable, "-m", "pyserini.index.lucene", *words.split()], cwd=folder, check=True)


def shopper(goal: dict, kind: int, rng: random.Random):
    """Actions of one of three shoppers, each chosen after what can be clicked is sent in."""
    words = goal["instruction_text"].split()
    options = goal["goal_options"]
    wanted = list(options.values() if isinstance(options, dict) else options)
    clickables = yield f"search[{goal['name'] if kind == 0 else ' '.join(rng.sample(words, min(6, len(words))))}]"
    if kind < 2:  # buys the product asked for as it should be, or that one or another with other options
        shown = [name for name in clickables if name.startswith("b0")]
        right = goal["asin"].lower() in shown and (kind == 0 or rng.random() < 0.6)
        clickables = yield f"click[{goal['asin'].lower() if right else rng.choice(shown or ['back to search'])}]"
        other = [name for name in clickables if name not in PAGE_BUTTONS]
        other = rng.sample(other, min(2, len(other)))
        for value in wanted if kind == 0 else [*rng.sample(wanted, len(wanted) // 2), *other]:
            clickables = yield f"click[{value}]"
        yield "click[buy now]"
    odd = ("fly", "click[nothing]", "search[]", "click[search]", "Click[Buy Now]", f"SEARCH[{words[-1].upper()}]",
           "search[the and of]", f"search[<q> {goal['query']}]", f"search[<c> {goal['category']}]",
           "look[red] mug[s]")  # fmt: skip
    while True:
        if rng.random() < 0.15:
            clickables = yield rng.choice(odd)
        elif rng.random() < 0.15 or not clickables:
            clickables = yield f"search[{' '.join(rng.sample(words, min(3, len(words))))}]"
        else:
            likely = [name for name in clickables if name not in ("buy now", "back to search")]
            clickables = yield f"click[{rng.choice(likely if likely and rng.random() < 0.9 else clickables)}]"


def record(environment: object, kind: int, index: int, rng: random.Random) -> dict:
    """One episode in the form of ``golden_episodes.json``."""
    goal = environment.server.goals[index]
    options = goal["goal_options"]
    environment.server.user_sessions.pop(str(index), None)
    observation, _ = environment.reset(session=index)
    available = environment.get_available_actions()
    episode = {
        "goal_idx": index, "asin": goal["asin"], "instruction": goal["instruction_text"],
        "attributes": goal["attributes"], "goal_options": options, "price_upper": goal["price_upper"],
        "reset_obs": observation, "reset_avail": available, "steps": [],
    }  # fmt: skip
    actions = shopper(goal, kind, rng)
    action = next(actions)
    for _ in range(STEPS):
        observation, reward, done, _ = environment.step(action)
        available = None if done else environment.get_available_actions()
        episode["steps"].append(
            {"action": action, "obs": observation, "reward": reward, "done": done, "avail": available}
        )
        if done:
            break
        action = actions.send(available["clickables"])
    return episode


def record_all(original: ModuleType, out: Path) -> None:
    """Every goal in the order of the seed, of both kinds, and the episodes."""
    rng = random.Random(SEED)
    goals = {}
    for kind, human in (("human", 1), ("synthetic", 0)):
        environment = original.WebAgentTextEnv(
            observation_mode="text", file_path=str(out / FILES[0]), attr_path=str(out / FILES[1]), seed=SEED,
            human_goals=human,
        )  # fmt: skip
        found = environment.server.goals
        goals[kind] = [[goal["asin"], goal["instruction_text"], goal["price_upper"]] for goal in found]
    untidy_goals = [index for index, goal in enumerate(found) if "UNTIDY" in goal["asin"]][::2]
    chosen = untidy_goals + rng.sample(range(len(found)), EPISODES - len(untidy_goals))
    episodes = [record(environment, number % 3, index, rng) for number, index in enumerate(chosen)]
    for name, content in (("golden_episodes.json", episodes), ("goals.json", goals)):
        (out / name).write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def main(webshop: Path, archive: Path) -> None:
    """Write catalogue, goals and episodes into one archive, without dates and owners."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder)
        write_catalogue(out)
        record_all(load_original(webshop.resolve(), out), out)
        with tarfile.open(archive, "w:xz", preset=9) as file:
            for path in sorted(out.iterdir()):
                member = tarfile.TarInfo(path.name)
                member.size = path.stat().st_size
                with path.open("rb") as content:
                    file.addfile(member, content)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))
