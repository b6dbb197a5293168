import re

import pytest

CREDITED = ".step.credited"


def state(page):
    """What the address holds after #, as the page has it: ``page.url`` follows a moment later."""
    return dict(part.split("=") for part in page.evaluate("location.hash.slice(1)").split("&") if part)


def texts(page, selector):
    return page.locator(selector).all_inner_texts()


def chosen(page):
    """The chosen step's side and time, as the address has it; the page shows that step, or none."""
    at = state(page).get("at")
    cards = page.locator(".steps").nth("rf".index(at[0])).locator(".step") if at != "none" else None
    shown = page.locator(".step.chosen")
    assert shown.count() == (cards is not None)
    assert cards is None or shown.inner_text() == cards.nth(int(at[1:])).inner_text()
    return at


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)
    return chosen(page)


@pytest.fixture
def group(open_page, reports):
    """The group worked by hand: sibling 1 follows the reference for steps 0 and 1."""
    return open_page(f"view=inspector&run={reports.runs[1]}&step=1&sibling=1")


def test_reference_and_failed_steps_are_side_by_side_with_their_pairs_linked(group):
    assert texts(group, ".columns h3") == ["Reference: sibling 0, 4 steps", "Failed: sibling 1, 4 steps"]
    assert [text.split()[1] for text in texts(group, ".step .head")] == list("abcdabxy")
    assert group.locator(CREDITED).count() == group.locator(".links path").count() == 2
    left, right = (group.locator(".steps").nth(k).bounding_box() for k in (0, 1))
    assert left["x"] + left["width"] < right["x"]
    assert abs(left["y"] - right["y"]) < 2
    first = group.locator(".links path").first.bounding_box()
    assert abs(first["x"] - (left["x"] + left["width"])) < 12
    assert abs(first["x"] + first["width"] - right["x"]) < 12


def test_the_chosen_step_shows_its_match_its_returns_and_the_effect_of_its_credit(group):
    details = group.locator(".details")
    assert "Matched reference step 0: M = 1.00 ≥ θ = 0.6, which earns credit 1.00." in details.inner_text()
    returns, advantage = (row.split("\t") for row in details.locator(".changes tbody tr").all_inner_texts())
    assert returns == ["return", "0.000", "0.500", "+0.500"]
    assert float(advantage[3]) == pytest.approx(
        float(advantage[2].replace("−", "-")) - float(advantage[1].replace("−", "-")), abs=2e-3
    )
    assert re.search(r"Effect: the advantage moved by \+\d", details.inner_text())
    assert "Anchor group: 4 steps from this state" in details.inner_text()
    peers = [row.split("\t")[:2] for row in texts(group, ".peers tbody tr")]
    assert peers == [["0 ✓", "0"], ["1 ✗", "0"], ["2 ✗", "0"], ["3 ✗", "0"]]


@pytest.mark.parametrize(
    ("sibling", "at", "effect"),
    [
        (1, "f1", "No effect: of two steps from one state, divided by their deviation, only the order counts."),
        (3, "f1", "No effect: no other step of the group starts from this state"),
        (1, "f2", "Its advantage is what it would be without SCPO."),
        (2, "f0", "Not credited itself, but the credit of steps that it is compared with moved its advantage by −"),
        (1, "r0", "Not credited itself, but the credit of steps that it is compared with moved its advantage by −"),
    ],
)
def test_credit_without_effect_is_distinguished_from_credit_that_moved_the_advantage(
    sibling, at, effect, open_page, reports
):
    page = open_page(f"view=inspector&run={reports.runs[1]}&step=1&sibling={sibling}&at={at}")
    assert page.locator(".effect").inner_text().startswith(effect)
    if "No effect" in effect:
        assert page.locator(".step.chosen .dead").inner_text() == "no effect"


def test_the_matrix_boxes_credited_cells_and_shows_numbers_on_hover(group):
    assert group.locator(".cells rect").count() == 16
    assert group.locator(".boxes rect").count() == 2
    cell = group.locator(".cells rect").nth(4 + 1)  # reference step 1, failed step 1
    cell.hover(force=True)
    readout = group.locator(".map + .readout")
    assert (
        readout.inner_text() == "reference 1 × failed 1: M = 1.000 ≥ θ · credited 1.000 · processed 2 of 4, then j = 1"
    )
    group.locator(".cells rect").nth(2).hover(force=True)
    assert readout.inner_text().startswith("reference 0 × failed 2: M = 0.000 < θ")
    cell.click(force=True)
    assert chosen(group) == "f1"


def test_the_walk_can_be_followed_step_by_step(group):
    slider, turn = group.locator("[name=walk]"), group.locator(".panel output")
    assert slider.input_value() == "4"
    assert group.locator(".trace circle").count() == 2
    slider.focus()
    group.keyboard.press("Home")
    assert turn.inner_text() == "before the first step: j = −1"
    assert group.locator(".trace circle").count() == 0
    for count, told in ((1, "j = 0, reference step 0"), (2, "j = 1, reference step 1"), (3, "j = −1")):
        group.keyboard.press("ArrowRight")
        assert turn.inner_text().startswith(f"{count} of 4 processed")
        assert turn.inner_text().endswith(told)


def test_every_key_does_what_the_help_describes(group):
    assert press(group, "ArrowDown") == "f1"
    assert press(group, "ArrowLeft") == "r1"
    assert press(group, "ArrowUp") == "r0"
    assert press(group, "ArrowUp") == "r0"
    assert press(group, "ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown") == "r3"
    assert press(group, "ArrowRight") == "f3"
    assert press(group, "p") == "f1"
    assert press(group, "p") == "f0"
    assert press(group, "n") == "f1"
    assert press(group, "Escape") == "none"
    assert group.locator(".chosen").count() == 0
    group.keyboard.press("]")
    group.wait_for_function("() => document.querySelector('[name=sibling]').value === '2'")
    group.keyboard.press("[")
    group.wait_for_function("() => document.querySelector('[name=sibling]').value === '1'")


def test_the_help_opens_lists_the_keys_and_closes(group):
    group.keyboard.press("?")
    dialog = group.locator("dialog")
    assert dialog.is_visible()
    assert dialog.locator("kbd").count() == 7
    dialog.get_by_role("button", name="Close").click()
    assert not dialog.is_visible()
    group.get_by_role("button", name="keys").click()
    assert dialog.is_visible()
    group.keyboard.press("Escape")
    assert not dialog.is_visible()


def test_braces_go_through_the_sampled_groups_of_all_steps_and_runs(open_page, reports):
    page = open_page(f"view=inspector&run={reports.runs[0]}")
    seen = []
    while (
        place := tuple(page.locator(f"[name={name}]").input_value() for name in ("run", "step", "group"))
    ) not in seen:
        seen.append(place)
        page.keyboard.press("}")
    assert {run for run, _, _ in seen} == set(reports.runs[:2])
    assert {step for run, step, _ in seen if run == reports.runs[0]} == {"1", "5", "10"}
    page.get_by_role("button", name="previous sampled group").click()
    page.wait_for_function("run => document.querySelector('[name=run]').value === run", arg=seen[-2][0])


def test_choosing_a_run_step_group_or_sibling_shows_it_and_writes_the_address(open_page, reports):
    page = open_page("view=inspector")
    for name in ("step", "group", "sibling"):
        select = page.locator(f"[name={name}]")
        last = select.locator("option").last.get_attribute("value")
        select.select_option(last)
        page.wait_for_function("([name, value]) => location.hash.includes(`${name}=${value}`)", arg=[name, last])
        assert select.input_value() == last
    assert f"sibling {last}" in page.locator(".columns h3").nth(1).inner_text()
    page.locator("[name=run]").select_option(reports.runs[1])
    page.wait_for_function("() => document.querySelector('[name=step]').options.length === 1")
    shown = page.locator("[name=sibling]").input_value()
    assert state(page)["sibling"] == shown  # of the new run: the address names what is shown


def test_buttons_move_between_siblings(group):
    group.get_by_role("button", name="next failed sibling").click()
    group.wait_for_function("() => document.querySelector('[name=sibling]').value === '2'")
    group.get_by_role("button", name="previous failed sibling").click()
    group.wait_for_function("() => document.querySelector('[name=sibling]').value === '1'")
    assert state(group)["sibling"] == "1"


def test_a_link_leads_to_the_step_and_back_leads_away_from_the_group(open_page, reports):
    first = open_page(f"view=inspector&run={reports.runs[1]}&step=1&group=0&sibling=1&at=f3")
    assert chosen(first) == "f3"
    assert "Not processed" not in first.locator(".details").inner_text()
    again = open_page(first.evaluate("location.hash.slice(1)"))
    assert again.locator(".details").inner_text() == first.locator(".details").inner_text()
    first.locator("[name=sibling]").select_option("2")
    press(first, "ArrowDown")
    first.go_back()
    first.wait_for_function("() => document.querySelector('[name=sibling]').value === '1'")


@pytest.mark.parametrize(
    "hash_", ["view=inspector&run=gone&step=77&group=x&sibling=9&at=f99", "view=inspector", "view=inspector&at=r"]
)
def test_a_link_to_what_is_not_there_shows_something_that_is(hash_, open_page):
    page = open_page(hash_)
    assert page.locator(".columns .step").count() > 2
    if "gone" in hash_:
        assert "asks for run gone, which this page does not have" in page.locator(".amiss").inner_text()


@pytest.mark.parametrize("hash_", ["", "view=nowhere", "%%%"])
def test_an_address_without_a_view_opens_the_overview(hash_, open_page):
    page = open_page(hash_)
    assert page.locator("[aria-current=page]").inner_text() == "Overview"
    assert page.locator(".overview figure table").count() == 1


def test_the_inspector_opens_on_the_most_telling_step_and_its_address_names_it(open_page, reports):
    page = open_page()
    page.get_by_role("link", name="The most telling step here").click()
    page.wait_for_selector(".inspector:visible")
    assert state(page).keys() == {"view", "run", "step", "group", "sibling", "at"}
    direct = open_page("view=inspector")
    assert {name: state(direct)[name] for name in ("run", "step", "group", "sibling")} == {
        name: state(page)[name] for name in ("run", "step", "group", "sibling")
    }
    assert "advantage changed by" in page.locator(".step.credited, .step.chosen").first.inner_text()


def test_clicking_a_step_chooses_it_and_lights_its_partner(group):
    group.locator(".steps").nth(0).locator(".step").nth(1).click()
    assert chosen(group) == "r1"
    assert "Matched by failed step 1 of sibling 1." in group.locator(".details").inner_text()
    assert group.locator(".links path.chosen").count() == group.locator(".step.partner").count() == 1
    group.locator("summary", has_text="State before it").click()
    assert group.locator(".details .text").inner_text() == "a"


def test_a_task_named_as_a_script_is_shown_and_not_run(open_page, reports):
    page = open_page(f"view=inspector&run={reports.runs[1]}&step=1&sibling=2&at=f0")
    assert '<script>alert(1)</script><img src=x onerror="alert(2)">' in page.locator(".summary").inner_text()
    assert "<script>alert(1)</script>" in page.locator(".step.chosen").inner_text()
    assert page.locator("script").count() == 2
    assert page.locator(".inspector img").count() == 0


def test_a_failed_step_without_credit_shows_the_reason(group):
    group.locator(".steps").nth(1).locator(".step").nth(2).click()
    chosen(group)
    assert (
        "No credit: the walk waited for reference step 2 (M = 0.00 < θ = 0.6)" in group.locator(".details").inner_text()
    )


def test_a_page_too_small_for_all_groups_shows_how_many_are_left_out(open_page):
    assert re.search(
        r"This page has room for \d of the 4 sampled training steps",
        open_page("view=inspector", name="cramped").inner_text("main"),
    )


def test_without_groups_the_overview_names_no_step_and_the_inspector_explains_where_groups_come_from(open_page):
    page = open_page(name="bare")
    assert page.locator("[aria-current=page]").inner_text() == "Overview"
    assert page.get_by_role("link", name="The most telling step here").count() == 0
    page.get_by_role("link", name="Credit inspector").click()
    page.get_by_text("No run here has recorded groups").wait_for()
    page.keyboard.press("ArrowDown")
