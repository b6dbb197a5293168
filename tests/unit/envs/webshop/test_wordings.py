from scpo.envs.rewording import Rewording
from scpo.envs.webshop.wordings import LABELS, PATTERNS, reworded
from scpo.schema.env import MOST_PARAPHRASES
from tests.unit.envs.test_rewording import config

PAGE = (
    "'Back to Search' [SEP] 'Page 1 (Total results: 2)' [SEP] 'Next >' [SEP] 'B000000001' [SEP] 'Red mug' [SEP] "
    "'$5.00' [SEP] 'B000000002' [SEP] 'Blue mug' [SEP] '$6.00'"
)


def draw(step=0, **changes):
    return Rewording(config(**changes), "goal", 0).draw(step)


def test_every_label_has_as_many_paraphrases_as_can_be_drawn():
    assert all(len(set(forms)) == MOST_PARAPHRASES for forms in LABELS.values())
    assert all(len(set(forms)) == MOST_PARAPHRASES + 1 for _, forms in PATTERNS)


def test_labels_change_and_texts_of_products_stay():
    for step in range(30):
        pieces = reworded(PAGE, draw(step, arms=("paraphrase",))).split(" [SEP] ")
        assert pieces[3:] == PAGE.split(" [SEP] ")[3:]
        assert "'Back to Search'" not in pieces


def test_products_are_listed_in_another_order_with_their_titles_and_prices():
    other = PAGE.split(" [SEP] ")
    texts = {reworded(PAGE, draw(step, arms=("order",))) for step in range(20)}
    assert texts == {PAGE, " [SEP] ".join([*other[:3], *other[6:], *other[3:6]])}


def test_a_page_of_one_product_keeps_its_order():
    page = "'Back to Search' [SEP] '< Prev' [SEP] 'red' [SEP] 'Red mug' [SEP] 'Price: $5.00'"
    assert reworded(page, draw(arms=("order",))) == page
    assert "$5.00" in reworded(page, draw(arms=("paraphrase",)))
