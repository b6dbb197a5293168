"""Descriptions of the benchmarks: complete for every environment that a configuration can name."""

import subprocess
import sys

import pytest

from scpo.benchmarks import BENCHMARKS, with_families
from scpo.envs import ENVIRONMENTS
from sweeps.compose.configuration import compose_run


@pytest.mark.parametrize(
    ("overrides", "name"),
    [
        (["env=alfworld"], "alfworld"),
        (["env=webshop"], "webshop"),
        (["env=webshop", "env.setting=paper"], "webshop_paper"),
    ],
)
@pytest.mark.parametrize("scale", ["mini", "study", "paper"])
def test_a_configuration_trains_and_validates_on_the_tasks_that_its_description_names(overrides, name, scale):
    run = compose_run([*overrides, f"scale={scale}"])
    described = BENCHMARKS[name]
    assert run.env.benchmark == name
    assert described.judged[scale] in run.env.validation_panels
    assert hasattr(run.env.train_panel, described.tasks)


def test_every_environment_is_described_and_every_description_has_an_environment():
    assert {name.partition("_")[0] for name in BENCHMARKS} == ENVIRONMENTS.keys()


def test_families_have_distinct_columns_ids_and_labels():
    for described in BENCHMARKS.values():
        families = described.families.values()
        assert len({family.id for family in families}) == len({family.label for family in families}) == len(families)
    assert with_families("alfworld")
    assert not with_families("webshop")
    assert not with_families("an_environment_from_outside")


def test_the_descriptions_load_no_other_module_of_the_project():
    code = "import sys, scpo.benchmarks; print([m for m in sys.modules if m.startswith(('scpo.', 'torch', 'numpy'))])"
    shown = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert shown.strip() == "['scpo.benchmarks']"
