import re

import pytest

from tests.support.validation_records import GAMES, MARKUP, won


@pytest.fixture
def episodes(open_page):
    return open_page("view=episodes")


def body(page, table):
    rows = page.locator(f"{table} tbody tr").all()
    return [[text.strip() for text in row.locator("th, td").all_inner_texts()] for row in rows]


def test_every_game_shows_which_row_wins_it_and_from_which_step(episodes):
    heads = [text.strip() for text in episodes.locator(".games thead th").all_inner_texts()]
    assert heads == ["game", "task", "SCPO (default) (2)", "− monotonicity (1)"]
    rows = body(episodes, ".games")
    assert len(rows) == GAMES
    for game, (name, _, ours, other) in enumerate(rows):
        wins = [won(game, seed, 20) for seed in (0, 1)]
        steps = [step for step in (0, 10, 20) if won(game, 0, step) or won(game, 1, step)]
        assert name.startswith(f"generated-0/{game:06d}")
        assert ours.split() == [f"{sum(wins)}/2", *(["first:", "step", str(min(steps))] if steps else [])]
        assert other.split()[0] == f"{int(wins[0])}/1"
    assert rows[0][1] == "pick and place"
    assert "of 12 games every row solves 11, no row 1." in episodes.locator(".tally").inner_text()


def test_a_number_opens_the_rows_runs_and_a_mark_the_transcript_and_the_address_keeps_both(
    episodes, open_page, reports
):
    episodes.locator(".games tbody tr").nth(0).locator(".open").nth(1).click()
    episodes.wait_for_selector(".marks")
    assert body(episodes, ".marks") == [["SCPO (default)", str(seed), "✓", "✓", "✓"] for seed in (0, 1)]
    episodes.locator(".marks .tell").last.click()
    episodes.wait_for_selector(".turns")
    assert episodes.locator(".turns li").count() == 3
    assert MARKUP in episodes.locator(".turns .answer").first.inner_text()
    assert "not in the required format" in episodes.locator(".turns .invalid").inner_text()
    assert "SCPO (default), seed 1, validation at step 20: 3 steps" in episodes.locator(".played h4").inner_text()
    address = episodes.evaluate("location.hash.slice(1)")
    assert reports.runs[1] in address
    again = open_page(address)
    assert again.locator(".played").inner_text() == episodes.locator(".played").inner_text()
    again.get_by_role("button", name="all rows").click()
    again.wait_for_function("() => document.querySelectorAll('.marks tbody tr').length === 3")


def test_a_run_without_a_validation_at_a_step_has_no_mark_there(episodes):
    episodes.locator(".games tbody .open").first.click()
    episodes.wait_for_selector(".marks")
    assert body(episodes, ".marks")[2] == ["− monotonicity", "1", "✓", "", "✓"]


def test_games_are_ordered_by_how_hard_they_are_and_by_where_rows_differ(episodes):
    select = episodes.locator("[name=order]")
    select.select_option("hard")
    episodes.wait_for_function("() => document.querySelector('.games tbody th').textContent.includes('000011')")
    hardest = episodes.locator(".games tbody th").first.inner_text()
    select.select_option("apart")
    episodes.wait_for_function("() => !document.querySelector('.games tbody th').textContent.includes('000011')")
    assert episodes.locator(".games tbody th").first.inner_text() != hardest


def test_filters_narrow_the_rows_of_the_games(episodes):
    episodes.locator("[name=label]:visible").select_option("SCPO (default)")
    episodes.wait_for_function("() => document.querySelectorAll('.games thead th').length === 3")
    assert "SCPO (default)" in episodes.locator(".games thead").inner_text()


@pytest.mark.parametrize(
    "hash_", ["view=episodes&panel=9&game=99&row=x&of=y&at=z&order=q", "view=compare&a=x&b=y&metric=z"]
)
def test_an_address_of_what_is_not_there_shows_what_is(hash_, open_page):
    page = open_page(hash_)
    assert page.locator("main > section:visible table").count() >= 1


def test_without_records_of_validations_the_page_explains_their_absence(open_page):
    page = open_page("view=episodes", name="bare")
    assert "None of these runs kept the episodes" in page.inner_text("main")
    page = open_page("view=compare", name="bare")
    assert "no two runs" in page.inner_text("main")


def test_two_runs_are_compared_side_by_side_with_their_differences(open_page, reports):
    page = open_page("view=compare")
    assert [page.locator(f"[name={name}]").input_value() for name in "ab"] == [reports.runs[0], reports.runs[2]]
    assert body(page, ".settings") == [["method.shaper.monotonic", "true", "false"]]
    assert page.locator(".chart svg path").count() == 2
    assert page.locator(".compare .legend .entry").all_inner_texts() == [
        "A: SCPO (default), seed 0", "B: − monotonicity, seed 0",
    ]  # fmt: skip
    for _, one, other, difference in body(page, ".last"):
        value = [float(re.sub(" %$", "", text).replace("−", "-")) for text in (one, other, difference)]
        # A share is printed in percent with one decimal, other numbers with four digits.
        tolerance = 0.11 if "%" in one else 1.1e-3 * max(map(abs, value[:2]))
        assert value[2] == pytest.approx(value[0] - value[1], abs=tolerance)


def test_seeds_of_one_row_differ_in_their_seed_and_look_different(open_page, reports):
    page = open_page(f"view=compare&a={reports.runs[0]}&b={reports.runs[1]}")
    assert body(page, ".settings") == [["seed", "0", "1"]]
    dashes = page.locator(".chart svg path").evaluate_all(
        "paths => paths.map(path => path.getAttribute('stroke-dasharray'))"
    )
    assert len(set(dashes)) == 2
    ((_, *counts),) = body(page, ".apart")
    both = sum(won(game, 0, 20) and won(game, 1, 20) for game in range(GAMES))
    assert counts == [str(both), "0", "0", str(GAMES - both)]
    page.get_by_role("button", name="swap").click()
    page.wait_for_function("run => document.querySelector('[name=a]').value === run", arg=reports.runs[1])
