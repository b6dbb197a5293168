"""The workflow and the forms of .github: each command that they name is there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[3]
GITHUB = ROOT / ".github"
WORKFLOW = yaml.safe_load((GITHUB / "workflows" / "ci.yml").read_text(encoding="utf-8"))
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
FORMS = sorted((GITHUB / "ISSUE_TEMPLATE").glob("*.yml"))


def commands():
    for job in WORKFLOW["jobs"].values():
        yield from (step["run"] for step in job["steps"] if "run" in step)


def made(text):
    """Targets of make that a text names."""
    return set(re.findall(r"\bmake ([a-z-]+)", text))


def test_every_target_of_the_workflow_is_in_the_makefile():
    named = set().union(*(made(text) for text in commands() if text.startswith("make ")))
    assert (
        {"lint", "test", "docs", "test-verl", "test-slurm", "test-browser", "test-faults"}
        <= named
        <= TARGETS | {"build-essential"}
    )


def test_every_test_target_of_the_makefile_is_run_somewhere():
    """Of what only a GPU or a third party's build can show, there is nothing to run."""
    run = set().union(*map(made, commands())) | made((ROOT / ".ci" / "run").read_text(encoding="utf-8"))
    assert {name for name in TARGETS if name.startswith("test")} - run == {"test-slow", "test-verl-vllm"}


def test_the_tests_of_large_data_are_those_that_ci_runs_with_it():
    """Modules of tests/support that look for the data are named in the Makefile."""
    named = re.search(r"^DATA := (.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)[1].split("|")
    support = ROOT / "tests" / "support"
    reading = {path.stem for path in support.glob("*.py") if re.search(r"\bshared\(", path.read_text(encoding="utf-8"))}
    assert reading <= set(named)
    assert all((support / f"{name}.py").is_file() for name in named)


def test_pushes_and_pull_requests_run_on_linux_and_macos_and_nothing_long():
    assert {"push", "pull_request", "workflow_dispatch"} <= WORKFLOW[True].keys()  # YAML 1.1 reads `on` as true
    short = {name for name, job in WORKFLOW["jobs"].items() if "if" not in job}
    assert short == {"lint", "test", "docs"}
    for name in short:
        assert {"ubuntu-latest", "macos-latest"} <= set(WORKFLOW["jobs"][name]["strategy"]["matrix"]["os"])


@pytest.mark.parametrize("form", FORMS, ids=lambda path: path.stem)
def test_a_form_has_a_name_and_labelled_fields_and_asks_for_the_records(form):
    content = yaml.safe_load(form.read_text(encoding="utf-8"))
    assert {"name", "description", "body"} <= content.keys()
    assert all(field["attributes"]["label"] and field["id"] for field in content["body"])
    asked = form.read_text(encoding="utf-8")
    assert "python -m sweeps verify" in asked
    assert "python -m sweeps doctor" in asked
