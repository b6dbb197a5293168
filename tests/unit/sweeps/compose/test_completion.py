import shutil
import subprocess

import pytest

from sweeps.compose.completion import SCRIPT, candidates


@pytest.mark.parametrize(
    ("word", "some"),
    [
        ("", {"method=", "method.", "seeds=", "rows=", "dry_run=", "+experiment="}),
        ("method=", {"method=scpo", "method=gigpo"}),
        ("method=sc", {"method=scpo"}),
        ("method.host=", {"method.host=gigpo"}),
        ("+experiment=abl", {"+experiment=ablation", "+experiment=ablation_order"}),
        ("method.sh", {"method.shaper."}),
        ("method.shaper.th", {"method.shaper.theta="}),
        ("method.shaper.monotonic=", {"method.shaper.monotonic=true", "method.shaper.monotonic=false"}),
        ("method.shaper.matcher=", {"method.shaper.matcher=kmp"}),
        ("method.shaper.order=b", {"method.shaper.order=balanced"}),
        ("wandb.mode=", {"wandb.mode=offline"}),
    ],
)
def test_an_override_is_completed(word, some):
    assert some <= set(candidates(word))
    assert all(one.startswith(word) for one in candidates(word))


def test_what_cannot_be_known_is_not_guessed():
    assert candidates("trainer.steps=") == []


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash: install it")
def test_the_script_is_bash():
    assert subprocess.run(["bash", "-n"], input=SCRIPT, text=True, check=False).returncode == 0
