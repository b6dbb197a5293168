"""The hooks in verl-agent's real modules on the CPU, in the order of its fit(): shaper off, no bit changes.

Runs where VERL_AGENT names a checkout of commit 796ed31 whose packages can be imported (CONTRIBUTING.md); a process of
its own, for the fork and PyPI verl share a name.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from scpo.errors import ConfigError
from scpo.integrations.verl_agent.__main__ import compose_fork
from scpo.integrations.verl_agent.fork_settings import settings
from sweeps.compose.configuration import compose_run
from tests.support.data_folders import DATA
from tests.support.verl_agent import NEEDS_CODE

ROOT = Path(__file__).parents[2]

PROBE = "from verl.trainer.ppo import ray_trainer; from agent_system.multi_turn_rollout import TrajectoryCollector"


@pytest.fixture(scope="module")
def environment():
    if "VERL_AGENT" not in os.environ:
        pytest.skip(NEEDS_CODE)
    paths = [os.environ["VERL_AGENT"], str(ROOT)]
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "RAY_USAGE_STATS_ENABLED": "0"}
    found = subprocess.run([sys.executable, "-c", PROBE], env=variables, capture_output=True, text=True, check=False)
    if found.returncode:
        pytest.skip(f"needs verl-agent's packages: docs/verl.md ({found.stderr.strip().splitlines()[-1]})")
    return variables


@pytest.mark.parametrize("ranks", [1, 4])
@pytest.mark.parametrize("mode", ["mean_std_norm", "mean_norm"])
def test_shaper_off_changes_no_bit_and_shaper_on_moves_only_failed_siblings_and_their_anchor_peers(
    environment, ranks, mode
):
    command = [sys.executable, "-m", "tests.contract.verl_agent_fit", str(ranks), mode]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=280)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "rows moved" in done.stdout
    print(done.stdout.splitlines()[-1])  # noqa: T201 - the record


@pytest.fixture(scope="module", params=["recorded", "code"])
def configuration(request, tmp_path_factory):
    """The folder of the fork's configuration, or of one that has its keys and no values."""
    if request.param == "code":
        if "VERL_AGENT" not in os.environ:
            pytest.skip(NEEDS_CODE)
        return Path(os.environ["VERL_AGENT"]) / "verl" / "trainer" / "config"
    folder, known = tmp_path_factory.mktemp("config"), OmegaConf.create()
    for key in (DATA / "verl_agent" / "configuration_keys.txt").read_text(encoding="utf-8").split():
        OmegaConf.update(known, key, None, force_add=True)
    OmegaConf.save(known, folder / "ppo_trainer.yaml")
    return folder


@pytest.mark.parametrize("method", ["scpo", "gigpo", "grpo", "rloo", "ppo", "dapo", "hgpo", "g2po", "empg"])
@pytest.mark.parametrize("env", ["alfworld", "webshop"])
def test_the_forks_configuration_knows_every_override(configuration, method, env):
    config = compose_run(["scale=paper", "trainer=verl_agent", f"method={method}", f"env={env}"])
    chosen = settings(config, Path("/runs/x"))
    composed = compose_fork(configuration, [setting.override for setting in chosen])
    assert {one.key: OmegaConf.select(composed, one.key) for one in chosen} == {one.key: one.value for one in chosen}


def test_a_key_that_the_fork_has_not_is_refused(configuration):
    with pytest.raises(ConfigError, match=r"refuses an override: .*algorithm\.gama"):
        compose_fork(configuration, ["algorithm.gama=0.95"])
