import http.server
import os
import threading
from pathlib import Path

import pytest

VIEWS = ("overview", "inspector", "runs", "curves", "compare", "episodes", "tables", "figures")
SIZES = {"laptop": (1366, 768), "phone": (390, 844)}


def column(page, name):
    place = [text.strip() for text in page.locator(".runs thead th").all_inner_texts()].index(name)
    return [row.locator("th, td").nth(place).inner_text() for row in page.locator(".runs tbody tr").all()]


def names(page):
    return [text.strip() for text in page.locator(".runs thead th").all_inner_texts()]


def test_every_tab_opens_its_view_and_only_that(open_page):
    page = open_page()
    for link in page.locator("nav a").all():
        link.click()
        page.wait_for_function("title => document.title.endsWith(title)", arg=link.inner_text())
        assert page.locator("main > section:visible").count() == 1
        assert link.get_attribute("aria-current") == "page"


def test_every_column_of_the_run_table_sorts_both_ways(open_page):
    page = open_page("view=runs")
    for name in names(page):
        button = page.locator(".runs thead").locator("button").nth(names(page).index(name))
        for direction in ("ascending", "descending"):
            button.click()
            page.wait_for_selector(f"th[aria-sort={direction}]")
            assert page.locator(f"th[aria-sort={direction}]").inner_text().startswith(name)


def test_runs_sort_by_number_and_by_name(open_page, reports):
    page = open_page("view=runs&sort=seed&down=1")
    assert column(page, "Seed") == ["1", "1", "0", "0"]
    page = open_page("view=runs&sort=val/valid_seen/success_rate")
    rates = [float(text.removesuffix(" %")) for text in column(page, "success, valid_seen")]
    assert rates == sorted(rates)
    assert sorted(column(page, "Run")) == sorted(reports.runs)


def test_filters_narrow_the_runs_and_the_curves_and_clear_widens_them(open_page):
    page = open_page("view=runs")
    assert page.locator(".runs tbody tr").count() == 4
    page.locator("[name=find]:visible").fill("NO_mono s1")
    page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 1")
    assert page.locator("output.count:visible").inner_text() == "1 of 4 runs"
    page.get_by_role("button", name="Clear").locator("visible=true").click()
    page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 4")
    page.locator("[name=label]:visible").select_option("SCPO (default)")
    page.wait_for_function("() => document.querySelectorAll('.runs tbody tr').length === 2")
    page.goto(page.url.replace("view=runs", "view=curves"))
    page.wait_for_selector(".chart svg")
    assert page.locator(".legend label").all_inner_texts() == ["SCPO (default) (2)"]


def test_a_run_with_groups_links_to_the_inspector(open_page, reports):
    page = open_page("view=runs")
    assert page.locator(".runs tbody a").count() == 2
    page.locator(".runs tbody a", has_text=reports.runs[1]).click()
    page.wait_for_selector(".inspector:visible")
    assert page.locator("[name=run]").input_value() == reports.runs[1]


def test_every_metric_draws_and_the_curves_read_out_on_hover_and_by_key(open_page):
    page = open_page("view=curves")
    select = page.locator("[name=metric]:visible")
    for metric in select.locator("option").all_inner_texts():
        select.select_option(metric)
        page.wait_for_function(
            "metric => document.querySelector('.chart svg').getAttribute('aria-label').startsWith(metric)", arg=metric
        )
        assert page.locator(".chart path").count() >= 4
    select.select_option("val/valid_seen/success_rate")
    page.wait_for_selector("svg[aria-label^='val/valid_seen/success_rate']")
    page.locator(".chart svg").hover(position={"x": 100, "y": 100})
    lines = page.locator(".readout li")
    assert page.locator(".readout p:visible").inner_text() == "step 0"
    assert lines.count() == 2
    assert lines.first.inner_text().startswith("SCPO (default): ")
    assert "±" in lines.first.inner_text()
    assert lines.first.inner_text().endswith("(n = 2)")
    page.locator(".chart svg").focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".readout p:visible").inner_text() == "step 5"


def test_a_row_can_be_taken_out_of_the_curves(open_page):
    page = open_page("view=curves")
    drawn = page.locator(".chart path").count()
    page.locator(".legend input").first.uncheck()
    assert page.locator(".chart path").count() < drawn
    page.locator(".legend input").first.check()
    assert page.locator(".chart path").count() == drawn


def test_tables_and_figures_are_on_the_page(open_page):
    page = open_page("view=tables")
    assert "93.7 ± 4.1" in page.locator("#tab_ablation_mini").inner_text()
    page = open_page("view=figures")
    for image in page.locator("figure img").all():
        image.scroll_into_view_if_needed()
        assert image.evaluate("image => image.decode().then(() => image.naturalWidth)") > 500


def test_what_could_not_be_built_or_read_is_listed(open_page):
    page = open_page("view=tables", name="bare")
    assert "is missing" in page.inner_text("main")
    assert "python sweep.py" in page.inner_text("main")


@pytest.mark.parametrize("view", VIEWS)
def test_nothing_is_wider_than_a_phone(view, open_page):
    page = open_page(f"view={view}", width=390, height=844)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_dark_mode_is_dark_and_its_text_light(open_page):
    shades = {}
    for scheme in ("light", "dark"):
        body = open_page(color_scheme=scheme).locator("body")
        shades[scheme] = [
            body.evaluate(f"body => getComputedStyle(body).{name}") for name in ("backgroundColor", "color")
        ]
    assert shades["light"][0] == "rgb(255, 255, 255)"
    assert all(int(part) < 40 for part in shades["dark"][0].strip("rgb()").split(","))
    assert all(int(part) > 200 for part in shades["dark"][1].strip("rgb()").split(","))


def test_print_shows_the_group_and_no_controls_even_in_dark_mode(open_page, reports):
    page = open_page(f"view=inspector&run={reports.runs[0]}", color_scheme="dark")
    page.emulate_media(media="print", color_scheme="dark")
    assert page.locator("select:visible, button:visible, input:visible").count() == 0
    assert page.locator(".printed").inner_text().startswith(f"Run {reports.runs[0]}, training step 1")
    assert page.locator("body").evaluate("body => getComputedStyle(body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.pdf().count(b"/Type /Page\n") >= 1


@pytest.fixture
def server():
    """A server on this machine that counts who asks."""
    asked = []

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}/", asked
        running.shutdown()


def test_the_policy_keeps_requests_and_foreign_scripts_in(chromium, reports, server):
    address, asked = server
    page = chromium.new_page()
    page.goto(reports.paths["full"].as_uri())
    refused = page.evaluate(
        """async address => {
          const refused = [];
          addEventListener('securitypolicyviolation', event => refused.push(event.effectiveDirective));
          await fetch(address + 'fetch').catch(() => null);
          const add = (tag, values) => document.body.append(Object.assign(document.createElement(tag), values));
          add('img', { src: address + 'image' });
          add('script', { src: address + 'script' });
          add('iframe', { src: address + 'frame' });
          add('script', { textContent: 'window.ran = true' });
          await new Promise(resolve => setTimeout(resolve, 300));
          return [refused, window.ran === true];
        }""",
        address,
    )
    page.close()
    assert asked == []
    assert sorted(set(refused[0])) == ["connect-src", "frame-src", "img-src", "script-src-elem"]
    assert refused[1] is False


@pytest.mark.parametrize("view", VIEWS)
def test_screenshots(view, open_page, tmp_path):
    """Saved in the folder ``SCPO_SCREENSHOTS``, for a look by eye."""
    folder = Path(os.environ.get("SCPO_SCREENSHOTS", tmp_path))
    for name, (width, height) in SIZES.items():
        for scheme in ("light", "dark"):
            page = open_page(f"view={view}", width=width, height=height, color_scheme=scheme)
            path = folder / f"{view}_{name}_{scheme}.png"
            page.screenshot(path=path)
            assert path.stat().st_size > 8000
    page = open_page(f"view={view}", width=794, height=1123)
    page.emulate_media(media="print")
    page.screenshot(path=folder / f"{view}_print.png", full_page=True)


def test_curves_are_ticked_all_none_or_one_alone(open_page):
    page = open_page("view=curves")
    ticked = page.locator(".legend input:checked")
    assert ticked.count() == 2
    page.get_by_role("button", name="none", exact=True).click()
    assert ticked.count() == 0
    page.locator(".legend .only").nth(1).click()
    assert ticked.count() == 1
    assert page.locator(".legend input").nth(1).is_checked()
    page.get_by_role("button", name="all", exact=True).click()
    assert ticked.count() == 2


def test_a_tables_latex_is_copied_or_shown(open_page):
    page = open_page("view=tables")
    page.get_by_role("button", name="Copy LaTeX").first.click()
    page.wait_for_function(
        "() => document.querySelector('#tab_ablation_mini .copy').textContent === 'copied'"
        " || !document.querySelector('#tab_ablation_mini textarea').hidden"
    )
    assert "\\begin{tabular" in page.locator("#tab_ablation_mini textarea").text_content()


@pytest.mark.parametrize("name", ["The most telling step here", "Credit inspector"])
def test_the_inspector_opens_at_its_top(open_page, name):
    page = open_page("view=overview", height=400)
    page.evaluate("scrollTo(0, document.body.scrollHeight)")
    assert page.evaluate("scrollY") > 0
    page.get_by_role("link", name=name).click()
    page.wait_for_selector(".inspector:visible")
    assert page.evaluate("scrollY") == 0


def test_compare_opens_on_two_runs_that_logged_something(open_page, reports):
    page = open_page("view=compare")
    silent = """(run) => {
      const runs = {...data.curves.runs, [run]: {}};
      const view = new CompareView({...data, curves: {...data.curves, runs}}, () => {});
      view.update({});
      return view.selects.map((select) => select.value);
    }"""
    for run in reports.runs:
        assert run not in page.evaluate(silent, run)


@pytest.mark.parametrize(
    ("caption", "title"),
    [
        ("Study scale: a policy that chooses. More.", "Study scale: a policy that chooses"),
        ("No full stop", "No full stop"),
        ("Seconds of 0.5 s a step. More", "Seconds of 0.5 s a step"),
        (
            "Main results: success rate (%) by task family and overall on ALFWorld, average score "
            "and success on WebShop.",
            "Main results: success rate (%) by task family and overall on ALFWorld",
        ),
    ],
)
def test_a_title_is_a_sentence_or_clauses_of_it(open_page, caption, title):
    assert open_page("view=tables").evaluate("(caption) => titleOf(caption)", caption) == title
