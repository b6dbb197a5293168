import pytest

from scpo.installed import REPOSITORY
from scpo.records.provenance import REGISTRIES, _parts, used_files, without_entries
from scpo.shaping.matcher import MATCHERS
from sweeps.compose.configuration import compose_run

ROLLOUT = {"scpo/rollout.py", "scpo/policies/loss.py", "scpo/trainers/local/trainer.py", "scpo/steps.py"}


@pytest.mark.parametrize(
    ("method", "used", "unused"),
    [
        ("gigpo", {"gigpo", "groups", "registry"}, {"crbc", "graphgpo", "hgpo"}),
        ("crbc", {"crbc", "groups", "registry"}, {"gigpo", "hgpo"}),
        ("scpo", {"gigpo"}, {"crbc"}),
    ],
)
def test_a_run_uses_its_own_estimator_and_no_other(method, used, unused):
    files = used_files(compose_run([f"method={method}"]), REPOSITORY)
    assert files >= {f"scpo/advantages/{name}.py" for name in used} | ROLLOUT
    assert not files & {f"scpo/advantages/{name}.py" for name in unused}


def test_a_run_uses_its_trainer_its_environment_and_its_identity_of_states():
    files = used_files(compose_run(["method=crbc", "method.estimator.states=closure"]), REPOSITORY)
    assert {"scpo/states/closure.py", "scpo/envs/alfworld/environment.py"} <= files
    assert not files & {"scpo/states/tfidf.py", "scpo/trainers/verl/trainer.py", "scpo/new.py", "scpo/preflight.py"}


def test_a_run_uses_its_matcher_and_no_other_that_has_a_file_of_its_own(monkeypatch):
    def mine(rule, m, order): ...

    mine.__module__ = "scpo.shaping.order"  # some file of the package
    monkeypatch.setitem(MATCHERS, "kmp", mine)
    assert "scpo/shaping/order.py" in list(_parts(compose_run(["method=scpo"])))
    assert "scpo/shaping/order.py" not in list(_parts(compose_run(["method=scpo", "method.shaper.matcher=forward"])))


@pytest.mark.parametrize("name", REGISTRIES)
def test_a_registry_without_its_entries_keeps_its_code(name):
    text = (REPOSITORY / name).read_text()
    kept = without_entries(text)
    assert "OURS = ()" in kept
    assert "GIGPO" not in kept
    assert kept.count("\ndef ") == text.count("\ndef ")
