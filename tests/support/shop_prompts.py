"""The shop's prompts with a memory, for tests of the policy that reads them."""

WISH = "Find me slim jeans with color: navy, and size: 7, and price lower than 50.00 dollars"


def shop_prompt(*notes, page="search 1", product="", last="", step=0, actions=("click[back to search]",)) -> str:
    head = [f"wish: {WISH}", f"page: {page}", f"product: {product}", f"last: {last}", f"step: {step}"]
    return "\n".join([*head, *notes, *(f"> {action}" for action in actions)])


SEARCH = shop_prompt(
    "searched slim", "seen b2 | $45.0 |  | jeans", last="search[slim]", step=4,
    actions=["search[slim jeans]", "search[slim jeans navy 7]", "search[find me slim jeans]", "search[slim]",
             "search[navy]"],
)  # fmt: skip
RESULTS = shop_prompt(
    "searched slim", "seen b9 | $9.0 |  | slim jeans", "seen b1 | $45.0 | item | slim jeans",
    "seen b2 | $45.0 to $60.0 |  | jeans", "seen b3 | $45.0 |  | slim", "seen b4 | $4.0 |  | slim",
    page="results 2", last="click[next >]", step=2,
    actions=["click[back to search]", "click[next >]", "click[b1]", "click[b2]", "click[b3]", "click[b4]"],
)  # fmt: skip
ITEM = shop_prompt(
    "searched slim", "chosen color: red", "option color: navy", "option color: red", "option size: small",
    "option size: 7", "seen b1 | $45.0 | item features | slim jeans", "seen b2 | $55.0 |  | jeans",
    page="item 1", product="b1", last="click[features]", step=5,
    actions=["click[buy now]", "click[navy]", "click[red]", "click[small]", "click[7]"],
)  # fmt: skip
SHOP_PROMPTS = [SEARCH, RESULTS, ITEM]
