"""Catalogue generated from a seed, in the official files' format: the offline default.

The words are our own. Categories, the number of queries and the shares of attributes and options
follow the statistics of the official 1,000 products.
"""

from __future__ import annotations

import random
import string
from collections.abc import Container, Sequence
from dataclasses import dataclass
from typing import Any

from scpo.envs.webshop.catalogue.catalogue import Catalogue, read_products


@dataclass(frozen=True)
class Department:
    """Category of the shop.

    Attributes:
        path: Beginning of the category path.
        audiences: First words of a query.
        things: Kinds of products; a query is an audience and a thing.
        qualities: Attributes that precede the thing in an instruction.
        features: Attributes that follow it, after "with".
        options: Option name to the values it may have.
    """

    path: str
    audiences: tuple[str, ...]
    things: tuple[str, ...]
    qualities: tuple[str, ...]
    features: tuple[str, ...]
    options: dict[str, tuple[str, ...]]

    @property
    def queries(self) -> tuple[str, ...]:
        """Queries of the department."""
        return tuple(
            f"{audience} {thing}".strip() for thing in self.things for audience in self.audiences
        )


COLOURS = tuple(
    str.split("black white navy blue red green grey pink purple brown beige yellow orange teal")
)
DEPARTMENTS = {
    "beauty": Department(
        path="Beauty & Personal Care",
        audiences=("", "travel"),
        things=(
            "shampoo", "conditioner", "lip balm", "face cream", "hair mask", "body wash",
            "hand soap", "nail polish", "eye shadow", "mascara", "hair brush", "makeup bag",
            "bath sponge", "foot file", "razor", "perfume", "hair dryer", "curling iron",
            "face mask", "sun lotion", "tooth brush", "mouthwash", "cotton pads", "tweezers",
            "hair clips", "body scrub", "massage oil", "beard balm", "makeup mirror",
        ),
        qualities=(
            "cruelty free", "long lasting", "alcohol free", "easy apply", "paraben free",
            "hypoallergenic", "fast drying", "high quality", "oil free", "fragrance free",
            "easy clean", "water resistant",
        ),
        features=(
            "tea tree", "coconut oil", "natural ingredients", "argan extract", "vitamin c",
            "shea butter", "aloe vera", "dry skin", "sensitive skin", "damaged hair", "fine lines",
            "daily care",
        ),
        options={
            "Color": COLOURS,
            "Size": (
                "50 ml", "100 ml", "250 ml", "500 ml", "1 ounce", "4 ounce", "8 ounce", "16 ounce",
            ),
            "Scent": ("citrus", "jasmine", "vanilla", "cedar", "unscented", "eucalyptus"),
        },
    ),
    "electronics": Department(
        path="Electronics",
        audiences=("", "portable"),
        things=(
            "headphones", "phone case", "charger", "hdmi cable", "speaker", "keyboard",
            "computer mouse", "monitor mount", "tablet stand", "webcam", "projector", "microphone",
            "router", "power bank", "smart watch", "camera bag", "tripod", "memory card", "radio",
            "television remote", "game controller", "car mount", "usb hub", "screen protector",
            "laptop sleeve", "security camera", "alarm clock", "printer",
        ),
        qualities=(
            "fast charging", "noise cancelling", "high speed", "easy install", "heavy duty",
            "hands free", "dust proof", "plug and play", "ultra thin", "gold plated",
            "quick release", "water proof",
        ),
        features=(
            "wireless connection", "touch screen", "optical zoom", "stereo sound", "usb port",
            "long battery life", "carrying case", "motion detection", "night vision",
            "aluminum alloy", "voice control", "blue light filter",
        ),
        options={
            "Color": COLOURS,
            "Size": (
                "3 feet", "6 feet", "10 feet", "15 feet", "25 feet", "10 inch", "13 inch",
                "15 inch",
            ),
            "Style": ("basic", "deluxe", "twin pack", "with case", "bundle"),
        },
    ),
    "garden": Department(
        path="Home & Kitchen",
        audiences=("", "outdoor"),
        things=(
            "console table", "floor lamp", "throw pillow", "area rug", "bar stool", "book shelf",
            "coffee table", "curtains", "bed frame", "dining chair", "flower pot", "garden bench",
            "wall clock", "storage basket", "shoe rack", "pendant light", "mattress", "blanket",
            "ottoman", "plant stand", "picture frame", "doormat", "cabinet", "desk",
            "candle holder", "hammock", "towel set",
        ),
        qualities=(
            "easy assemble", "space saving", "machine washable", "height adjustable",
            "fade resistant", "mid century", "non slip", "eco friendly", "easy to hang",
            "hand woven", "double sided", "assembly free",
        ),
        features=(
            "solid wood", "memory foam", "steel frame", "storage space", "wood finish",
            "faux leather", "metal legs", "living room", "dining room", "tempered glass",
            "led bulbs", "cotton cover",
        ),
        options={
            "Color": COLOURS,
            "Size": ("twin", "full", "queen", "king", "24 inch", "36 inch", "48 inch", "60 inch"),
            "Pattern Name": ("striped", "floral", "geometric", "quilted", "plaid"),
        },
    ),
    "fashion": Department(
        path="Clothing, Shoes & Jewelry",
        audiences=("men's", "women's"),
        things=(
            "loafers", "sandals", "running shoes", "boots", "slippers", "jeans", "shorts", "hoodie",
            "t shirt", "dress shirt", "sweater", "jacket", "raincoat", "pajamas", "swimsuit",
            "socks", "gloves", "scarf", "sun hat", "belt", "backpack", "wallet", "sunglasses",
            "leggings", "vest",
        ),
        qualities=(
            "machine wash", "hand wash", "slim fit", "loose fit", "slip resistant",
            "moisture wicking", "day comfort", "quick drying", "officially licensed",
            "light weight", "wide fit", "winter warm",
        ),
        features=(
            "rubber sole", "elastic waist", "long sleeve", "short sleeve", "button closure",
            "drawstring closure", "polyester spandex", "arch support", "zipper pockets",
            "memory insole", "cotton lining", "high waist",
        ),
        options={
            "Color": COLOURS,
            "Size": (
                "small", "medium", "large", "x-large", "xx-large", "6", "7", "8", "9", "10", "11",
            ),
            "Fit Type": ("regular", "petite", "tall", "plus"),
        },
    ),
    "grocery": Department(
        path="Grocery & Gourmet Food",
        audiences=("",),
        things=(
            "protein shake", "granola", "pasta", "olive oil", "green tea", "coffee beans",
            "dark chocolate", "almond butter", "trail mix", "tomato sauce", "rice crackers",
            "oatmeal", "honey", "maple syrup", "beef jerky", "salsa", "popcorn", "dried mango",
            "chicken soup", "energy bars", "sea salt", "cookies", "baking mix", "fruit juice",
            "canned tuna", "chili sauce", "gummy candy", "pretzels",
        ),
        qualities=(
            "gluten free", "non gmo", "dairy free", "sugar free", "plant based", "keto friendly",
            "low sodium", "usda organic", "ready to eat", "soy free", "fat free",
            "kosher certified",
        ),
        features=(
            "natural flavors", "artificial colors", "high protein", "dietary fiber",
            "resealable bag", "simple ingredients", "gift basket", "family size", "low calorie",
            "shelf stable", "real fruit", "whole grain",
        ),
        options={
            "Flavor Name": (
                "original", "vanilla", "spicy", "honey", "peanut", "lemon", "cinnamon", "smoky",
            ),
            "Size": ("pack of 1", "pack of 2", "pack of 4", "pack of 6", "pack of 12"),
            "Style": ("whole", "sliced", "ground"),
        },
    ),
}  # fmt: skip

BRANDS = tuple(
    str.split(
        "Norvale Teklund Brisa Ocarra Hallmere Pinewick Zunto Larkspur Movani Quill Estero Varn "
        "Delmora Tilby Kestra Ambry Fenwick Solara Juno Mirel Okto Pravo Ridgely Savant Umbra "
        "Velmo Wexley Yarrow Corvin Bellamy"
    )
)
EXTRAS = (
    "everyday value edition",
    "great gift for friends and family",
    "made for home and office",
    "new design this season",
    "trusted by experts",
    "simple and sturdy construction",
    "perfect for parties and holidays",
    "compact and convenient",
    "designed in small batches",
    "customer favorite for years",
    "backed by friendly support",
    "carefully packed in a box",
)
SENTENCES = (
    "This {query} was made with care, so that it serves you well day after day.",
    "If you are not happy with your {query}, write to us and we will find a solution.",
    "Please read the size chart and the notes below before you order.",
    "A present that your family will enjoy at any time of the year.",
    "Our workshop tests every {query} before it leaves the house.",
)

# Numbers of the official 1,000 products by category, and by how many options they have.
SHARES = {"beauty": 238, "electronics": 229, "garden": 216, "fashion": 200, "grocery": 117}
NUMBER_OF_OPTIONS = {0: 523, 1: 247, 2: 214, 3: 16}

# Values of an option, drawn with equal probability; the median is 4 as in the official file.
NUMBER_OF_VALUES = (2, 2, 3, 3, 4, 4, 4, 5, 5, 6, 8)

# Share of products that synthetic goals are made from.
INSTRUCTED = 0.415

# Share of products with a price range instead of a price.
PRICED_AS_RANGE = 0.093

# Lowest and highest price in US dollars.
PRICES = (9.0, 200.0)

# Mean length of a title, in characters.
TITLE = 117

Record = dict[str, Any]


def generated_catalogue(seed: int, products: int) -> Catalogue:
    """The catalogue of ``generate(seed, products)``."""
    items, attributes = generate(seed, products)
    origin = f"the generated catalogue (seed {seed}, {products} products)"
    return Catalogue(tuple(read_products(items, attributes, origin)), None, origin)


def generate(seed: int, products: int) -> tuple[list[Record], dict[str, Record]]:
    """Contents of an items file and of its attribute file, a pure function of the arguments."""
    rng = random.Random(f"webshop {seed}")
    items: list[Record] = []
    attributes: dict[str, Record] = {}
    for category, query in _queries(rng, products):
        item, mined = _product(rng, category, query, taken=attributes.keys())
        attributes[item["asin"]] = mined
        items.append(item)
    return items, attributes


def _queries(rng: random.Random, products: int) -> list[tuple[str, str]]:
    """Draw (category, query) of each product.

    Every query occurs at least once if there are enough products; the rest is drawn by share.
    """
    every = [
        (category, query)
        for category, department in DEPARTMENTS.items()
        for query in department.queries
    ]
    # Shuffled before the cut, so that a small catalogue has queries of every category.
    rng.shuffle(every)
    categories = rng.choices(list(SHARES), list(SHARES.values()), k=max(products - len(every), 0))
    more = [(category, rng.choice(DEPARTMENTS[category].queries)) for category in categories]
    chosen = (every + more)[:products]
    rng.shuffle(chosen)
    return chosen


def _product(
    rng: random.Random, category: str, query: str, taken: Container[str]
) -> tuple[Record, Record]:
    """Record of a product and its entry in the attribute file; ``taken``: ASINs in use."""
    department = DEPARTMENTS[category]
    qualities = rng.sample(department.qualities, rng.randint(1, 3))
    features = rng.sample(department.features, rng.randint(1, 3))
    title = _title(rng, query, qualities, features)
    asin = _asin(rng, taken)
    # With columns that the engine does not read (images, rating, page), as in the official file.
    item = {
        "name": title,
        "full_description": " ".join(rng.sample(SENTENCES, 3)).format(query=query),
        "pricing": _pricing(rng),
        "images": [],
        "product_category": _category_path(department, query),
        "average_rating": "",
        "small_description": _bullets(rng, query, qualities, features),
        "customization_options": _options(rng, department) or "",
        "asin": asin,
        "category": category,
        "query": query,
        "page": rng.randint(1, 400),
    }
    mined: Record = {"attributes": [*qualities, *features]}
    if rng.random() < INSTRUCTED:
        mined |= _instruction(rng, query, qualities, features)
    return item, mined


def _title(
    rng: random.Random, query: str, qualities: Sequence[str], features: Sequence[str]
) -> str:
    """Brand, qualities, query and features, then sellers' extras up to the usual length."""
    title = f"{rng.choice(BRANDS)} {' '.join(qualities)} {query} with {', '.join(features)}".title()
    # str.title() capitalises the letter after an apostrophe.
    title = title.replace("'S", "'s")
    for extra in rng.sample(EXTRAS, len(EXTRAS)):
        if len(title) + len(extra) / 2 > TITLE:
            break
        title += f", {extra.capitalize()}"
    return title


def _asin(rng: random.Random, taken: Container[str]) -> str:
    """Draw an unused id in Amazon's format; a second product with the same id would be skipped."""
    while True:
        asin = "B0" + "".join(rng.choices(string.ascii_uppercase + string.digits, k=8))
        if asin not in taken:
            return asin


def _pricing(rng: random.Random) -> str:
    """A price or a range, as the items file writes them."""
    low, high = PRICES
    # Uniform in the logarithm: most products of the official catalogue are cheap.
    price = low * (high / low) ** rng.random()
    if rng.random() < PRICED_AS_RANGE:
        return f"${price:.2f} to ${price * rng.uniform(1.1, 1.8):.2f}"
    return f"${price:.2f}"


def _category_path(department: Department, query: str) -> str:
    """Category path of three parts.

    Products of one kind share the first two: the reward takes two shared parts as one category.
    """
    # The last word of the query is that of the thing.
    *_, kind = query.split()
    return f"{department.path} › {kind.title()} › {query.title()}"


def _bullets(
    rng: random.Random, query: str, qualities: Sequence[str], features: Sequence[str]
) -> list[str]:
    """Bullets that name each attribute once, in random order, and two of the sellers' extras.

    The reward looks for attributes in these texts too.
    """
    bullets = [
        f"{attribute.upper()}: our {query} is known for it. "
        for attribute in (*qualities, *features)
    ]
    return rng.sample(bullets, len(bullets)) + [
        f"{extra.capitalize()}. " for extra in rng.sample(EXTRAS, 2)
    ]


def _options(rng: random.Random, department: Department) -> dict[str, list[Record]]:
    """Options of a product in the items file's form: name -> objects with a ``value``."""
    count = rng.choices(list(NUMBER_OF_OPTIONS), list(NUMBER_OF_OPTIONS.values()))[0]
    names = rng.sample(list(department.options), count)
    return {
        name: [{"value": value} for value in _values(rng, department.options[name])]
        for name in names
    }


def _values(rng: random.Random, values: Sequence[str]) -> list[str]:
    """Some of the values, in their given order."""
    chosen = set(rng.sample(values, min(rng.choice(NUMBER_OF_VALUES), len(values))))
    return [value.title() for value in values if value in chosen]


def _instruction(
    rng: random.Random, query: str, qualities: Sequence[str], features: Sequence[str]
) -> Record:
    """Synthetic instruction that asks for some of the product's attributes."""
    before = rng.sample(qualities, rng.randint(1, min(2, len(qualities))))
    after = rng.sample(features, rng.randint(1, min(2, len(features))))
    return {
        "instruction": f"Find me {', '.join(before)} {query} with {', '.join(after)}",
        "instruction_attributes": [*before, *after],
    }
