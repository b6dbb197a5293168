"""A report in a real headless Chromium; without one, or without Playwright, these tests are skipped with the reason."""

import os
import shutil
from pathlib import Path

import pytest

from analysis.__main__ import main
from tests.browser.reports import Reports
from tests.support.group_samples import BATCH_WITH_MARKUP, write_groups
from tests.support.run_records import write_ablation, write_run
from tests.support.validation_records import write_validations

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")


def pytest_collection_modifyitems(items):
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.browser)


@pytest.fixture(scope="session")
def chromium():
    """The system's Chromium. ``SCPO_CHROMIUM`` names one that is not on PATH."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright: make test-browser")
    path = os.environ.get("SCPO_CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("needs Chromium: apt-get install chromium, or the package of your system")
    with playwright.sync_playwright() as driver:
        sandbox = [] if os.geteuid() else ["--no-sandbox"]  # Chromium refuses its sandbox to root
        browser = driver.chromium.launch(executable_path=path, args=sandbox)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def reports(tmp_path_factory):
    """Pages: ``full`` of an ablation with sampled groups, ``cramped`` with room for few, ``bare`` without any."""
    folder = tmp_path_factory.mktemp("reports")
    ids = write_ablation(folder / "runs", seeds=(0, 1), steps=20, every=5, probes=(0, 20), panels=("valid_seen",))
    write_groups(folder / "runs" / ids["scpo"][0], 1, 5, 10)
    write_groups(folder / "runs" / ids["scpo"][1], 1, batch=BATCH_WITH_MARKUP)
    for seed, run in enumerate(ids["scpo"]):
        write_validations(folder / "runs" / run, seed, 0, 10, 20)
    write_validations(folder / "runs" / ids["no_monotonicity"][1], 0, 0, 20)
    write_run(folder / "bare", steps=4, state="RUNNING")
    made = {}
    for name, runs, room in (("full", "runs", "6"), ("cramped", "runs", "0.01"), ("bare", "bare", "6")):
        out = folder / f"page_{name}"
        assert main(["report", "--runs-dir", str(folder / runs), "--out", str(out), "--megabytes", room]) == 0
        made[name] = out / "report.html"
    return Reports(made, [run for runs in ids.values() for run in runs])


@pytest.fixture
def open_page(chromium, reports):
    """Open a report; at the end of the test the page must have logged no error and asked the network for nothing."""
    contexts, complaints = [], []

    def opened(hash_="", *, name="full", width=1366, height=768, **settings):
        context = chromium.new_context(viewport={"width": width, "height": height}, **settings)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: complaints.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: complaints.append(f"error: {error}"))
        page.on("dialog", lambda dialog: (complaints.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: _note_request(request.url, complaints))
        page.goto(f"{reports.paths[name].as_uri()}#{hash_}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert complaints == []


def _note_request(url, complaints):
    if not url.startswith(("file:", "data:")):
        complaints.append(f"request: {url}")
