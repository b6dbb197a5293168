"""What the generated shop sells: kinds of products by category, with their attributes and options.

All words are ours; categories, numbers of queries and shares follow the statistics of the official 1,000 products.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Department:
    """One category of the shop.

    Attributes:
        path: Beginning of the category path.
        audiences: What a query may begin with.
        things: Kinds of products; a query is an audience and a thing.
        qualities: Attributes that stand before the thing in an instruction.
        features: Attributes that stand behind it, after "with".
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
        """All queries of the department."""
        return tuple(f"{audience} {thing}".strip() for thing in self.things for audience in self.audiences)


COLOURS = tuple(str.split("black white navy blue red green grey pink purple brown beige yellow orange teal"))
DEPARTMENTS = {
    "beauty": Department(
        path="Beauty & Personal Care",
        audiences=("", "travel"),
        things=(
            "shampoo", "conditioner", "lip balm", "face cream", "hair mask", "body wash", "hand soap", "nail polish",
            "eye shadow", "mascara", "hair brush", "makeup bag", "bath sponge", "foot file", "razor", "perfume",
            "hair dryer", "curling iron", "face mask", "sun lotion", "tooth brush", "mouthwash", "cotton pads",
            "tweezers", "hair clips", "body scrub", "massage oil", "beard balm", "makeup mirror",
        ),
        qualities=(
            "cruelty free", "long lasting", "alcohol free", "easy apply", "paraben free", "hypoallergenic",
            "fast drying",
            "high quality", "oil free", "fragrance free", "easy clean", "water resistant",
        ),
        features=(
            "tea tree", "coconut oil", "natural ingredients", "argan extract", "vitamin c", "shea butter",
            "aloe vera",
            "dry skin", "sensitive skin", "damaged hair", "fine lines", "daily care",
        ),
        options={
            "Color": COLOURS,
            "Size": ("50 ml", "100 ml", "250 ml", "500 ml", "1 ounce", "4 ounce", "8 ounce", "16 ounce"),
            "Scent": ("citrus", "jasmine", "vanilla", "cedar", "unscented", "eucalyptus"),
        },
    ),
    "electronics": Department(
        path="Electronics",
        audiences=("", "portable"),
        things=(
            "headphones", "phone case", "charger", "hdmi cable", "speaker", "keyboard", "computer mouse",
            "monitor mount",
            "tablet stand", "webcam", "projector", "microphone", "router", "power bank", "smart watch", "camera bag",
            "tripod", "memory card", "radio", "television remote", "game controller", "car mount", "usb hub",
            "screen protector", "laptop sleeve", "security camera", "alarm clock", "printer",
        ),
        qualities=(
            "fast charging", "noise cancelling", "high speed", "easy install", "heavy duty", "hands free",
            "dust proof",
            "plug and play", "ultra thin", "gold plated", "quick release", "water proof",
        ),
        features=(
            "wireless connection", "touch screen", "optical zoom", "stereo sound", "usb port", "long battery life",
            "carrying case", "motion detection", "night vision", "aluminum alloy", "voice control",
            "blue light filter",
        ),
        options={
            "Color": COLOURS,
            "Size": ("3 feet", "6 feet", "10 feet", "15 feet", "25 feet", "10 inch", "13 inch", "15 inch"),
            "Style": ("basic", "deluxe", "twin pack", "with case", "bundle"),
        },
    ),
    "garden": Department(
        path="Home & Kitchen",
        audiences=("", "outdoor"),
        things=(
            "console table", "floor lamp", "throw pillow", "area rug", "bar stool", "book shelf", "coffee table",
            "curtains", "bed frame", "dining chair", "flower pot", "garden bench", "wall clock", "storage basket",
            "shoe rack", "pendant light", "mattress", "blanket", "ottoman", "plant stand", "picture frame", "doormat",
            "cabinet", "desk", "candle holder", "hammock", "towel set",
        ),
        qualities=(
            "easy assemble", "space saving", "machine washable", "height adjustable", "fade resistant", "mid century",
            "non slip", "eco friendly", "easy to hang", "hand woven", "double sided", "assembly free",
        ),
        features=(
            "solid wood", "memory foam", "steel frame", "storage space", "wood finish", "faux leather", "metal legs",
            "living room", "dining room", "tempered glass", "led bulbs", "cotton cover",
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
            "loafers", "sandals", "running shoes", "boots", "slippers", "jeans", "shorts", "hoodie", "t shirt",
            "dress shirt", "sweater", "jacket", "raincoat", "pajamas", "swimsuit", "socks", "gloves", "scarf",
            "sun hat",
            "belt", "backpack", "wallet", "sunglasses", "leggings", "vest",
        ),
        qualities=(
            "machine wash", "hand wash", "slim fit", "loose fit", "slip resistant", "moisture wicking", "day comfort",
            "quick drying", "officially licensed", "light weight", "wide fit", "winter warm",
        ),
        features=(
            "rubber sole", "elastic waist", "long sleeve", "short sleeve", "button closure", "drawstring closure",
            "polyester spandex", "arch support", "zipper pockets", "memory insole", "cotton lining", "high waist",
        ),
        options={
            "Color": COLOURS,
            "Size": ("small", "medium", "large", "x-large", "xx-large", "6", "7", "8", "9", "10", "11"),
            "Fit Type": ("regular", "petite", "tall", "plus"),
        },
    ),
    "grocery": Department(
        path="Grocery & Gourmet Food",
        audiences=("",),
        things=(
            "protein shake", "granola", "pasta", "olive oil", "green tea", "coffee beans", "dark chocolate",
            "almond butter",
            "trail mix", "tomato sauce", "rice crackers", "oatmeal", "honey", "maple syrup", "beef jerky", "salsa",
            "popcorn", "dried mango", "chicken soup", "energy bars", "sea salt", "cookies", "baking mix",
            "fruit juice",
            "canned tuna", "chili sauce", "gummy candy", "pretzels",
        ),
        qualities=(
            "gluten free", "non gmo", "dairy free", "sugar free", "plant based", "keto friendly", "low sodium",
            "usda organic",
            "ready to eat", "soy free", "fat free", "kosher certified",
        ),
        features=(
            "natural flavors", "artificial colors", "high protein", "dietary fiber", "resealable bag",
            "simple ingredients",
            "gift basket", "family size", "low calorie", "shelf stable", "real fruit", "whole grain",
        ),
        options={
            "Flavor Name": ("original", "vanilla", "spicy", "honey", "peanut", "lemon", "cinnamon", "smoky"),
            "Size": ("pack of 1", "pack of 2", "pack of 4", "pack of 6", "pack of 12"),
            "Style": ("whole", "sliced", "ground"),
        },
    ),
}  # fmt: skip

BRANDS = tuple(
    str.split(
        "Norvale Teklund Brisa Ocarra Hallmere Pinewick Zunto Larkspur Movani Quill Estero Varn Delmora Tilby Kestra "
        "Ambry Fenwick Solara Juno Mirel Okto Pravo Ridgely Savant Umbra Velmo Wexley Yarrow Corvin Bellamy"
    )
)
EXTRAS = tuple(
    str.split(
        "everyday value edition|great gift for friends and family|made for home and office|new design this "
        "season|trusted by experts|simple and sturdy construction|perfect for parties and holidays|compact and "
        "convenient|designed in small batches|customer favorite for years|backed by friendly support|carefully packed"
        " in a box",
        "|",
    )
)
SENTENCES = (
    "This {query} was made with care, so that it serves you well day after day.",
    "If you are not happy with your {query}, write to us and we will find a solution.",
    "Please read the size chart and the notes below before you order.",
    "A present that your family will enjoy at any time of the year.",
    "Our workshop tests every {query} before it leaves the house.",
)
