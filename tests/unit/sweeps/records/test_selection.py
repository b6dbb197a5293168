import pytest

import sweeps.__main__
from scpo.errors import ConfigError
from sweeps.compose.matrix import expand
from sweeps.records import manifest
from sweeps.records import run_folders as store
from sweeps.records.selection import select


@pytest.fixture(scope="module")
def runs_dir(tmp_path_factory):
    path = tmp_path_factory.mktemp("runs")
    for experiment in ("ablation_order", "ablation_monotonicity"):
        matrix = expand(experiment, [f"machine.runs_dir={path}", "seeds=[0,1]"])
        for config in matrix.runs.values():
            store.ensure(config)
        manifest.update(path, matrix)
    return path


def count(runs_dir, *patterns):
    return len(select(runs_dir, patterns))


def test_a_pattern_means_runs_or_experiments(runs_dir):
    assert count(runs_dir, "*") == 6
    assert count(runs_dir, "*-s0-*") == 3
    assert count(runs_dir, "ablation_order") == 4
    assert count(runs_dir, "ablation_*") == 6
    assert count(runs_dir, "*chronological-s0-*", "*chronological-s1-*") == 2


def test_a_pattern_without_a_match_is_refused_with_what_there_is(runs_dir):
    with pytest.raises(
        ConfigError, match="matches 'ablatoin'; experiments there: ablation_monotonicity, ablation_order"
    ):
        select(runs_dir, ["ablatoin"])


def test_no_runs_at_all_are_no_mistake(tmp_path):
    assert select(tmp_path, ["*"]) == []


def test_a_folder_that_is_not_there_is_told_apart_from_one_without_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert sweeps.__main__.main(["status"]) == 0
    assert sweeps.__main__.main(["status", "--runs-dir", "typo"]) == 2
    assert "there is no such folder" in capsys.readouterr().err
