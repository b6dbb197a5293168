from pathlib import Path

import pytest

from scpo.errors import ConfigError
from scpo.records.identity import run_id
from sweeps.compose.configuration import compose_files, compose_run
from sweeps.launchers.slurm.cluster_settings import Site, read_site

SHIPPED = Path(__file__).parents[5] / "slurm" / "site.yaml"


def test_the_shipped_settings_leave_all_to_the_cluster():
    site = read_site(SHIPPED)
    assert (site.partition, site.setup, site.more, site.max_time_h) == (None, (), {}, 24)
    assert (site.memory_flag(128), site.gpu_flags(4)) == ("131072M", {"gpus_per_node": 4})


BAD = {
    "misspelt": ("max_time_h: 24", "partitoin: gpu", "unknown key partitoin"),
    "misspelt preset": ("max_time_h: 24", "presets: gres", "not shown); did you mean preset?"),
    "all keys": ("max_time_h: 24", "node: a", "memory_gb, more, partition, preset, qos, setup"),
    "wrong type": ("max_time_h: 24", "max_time_h: long", "max_time_h: got 'long'"),
    "no YAML": ("max_time_h: 24", "partition: gpu: a", "line 12, column 15: no YAML: mapping values"),
    "no such preset": ("max_time_h: 24", "preset: grse", "preset: got 'grse'; allowed: gpu_and_cpu, gres, short_jobs"),
}


@pytest.mark.parametrize(("old", "new", "message"), BAD.values(), ids=BAD)
def test_a_mistake_is_named_with_the_file(tmp_path, old, new, message):
    path = tmp_path / "site.yaml"
    path.write_text(SHIPPED.read_text().replace(old, new))
    with pytest.raises(ConfigError) as caught:
        read_site(path)
    assert str(path) in str(caught.value)
    assert message in str(caught.value)


def test_the_file_needs_only_the_differences_and_may_begin_with_a_preset(tmp_path):
    path = tmp_path / "mine.yaml"
    path.write_text("preset: gpu_and_cpu\npartition: a100\n")
    site = read_site(path)
    assert (site.partition_for(4), site.partition_for(0), site.max_time_h) == ("a100", "cpu", 24)
    path.write_text("")
    assert read_site(path).partition_for(4) is None


def test_more_changes_single_options_of_the_preset(tmp_path):
    """It replaced all of them: jobs asked for a node's memory without --exclusive."""
    path = tmp_path / "mine.yaml"
    path.write_text("preset: whole_nodes\nmore: {reservation: rl}\n")
    site = read_site(path)
    assert (site.memory_gb, site.more) == (0, {"exclusive": True, "reservation": "rl"})
    path.write_text("preset: whole_nodes\nmore: {--exclusive: user}\n")
    assert read_site(path).more == {"--exclusive": "user"}


@pytest.mark.parametrize("off", ["exclusive: null", "exclusive: false", "exclusive:", "--exclusive: null"])
def test_an_option_of_the_preset_is_taken_out(tmp_path, off):
    """sbatch got --exclusive=None, --exclusive=False."""
    path = tmp_path / "mine.yaml"
    path.write_text(f"preset: whole_nodes\nmore:\n  {off}\n  gres: null\n  nice: 100\n")
    assert read_site(path).more == {"nice": 100}


@pytest.mark.parametrize("twice", ["partition: a\npartition: b", "more: {nice: 1, nice: 2}"])
def test_a_key_that_is_there_twice_is_refused(tmp_path, twice):
    path = tmp_path / "site.yaml"
    path.write_text(twice)
    with pytest.raises(
        ConfigError, match=r"site.yaml, line ., column .*: no YAML: found duplicate key (partition|nice)"
    ):
        read_site(path)


def test_an_anchor_may_be_merged_with_keys_of_its_own(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("more: {<<: {nice: 1, begin: now}, nice: 2}\n")
    assert read_site(path).more == {"nice": 2, "begin": "now"}


def test_a_file_that_is_not_utf_8_is_named(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_bytes("account: m\xfcller\n".encode("latin-1"))
    with pytest.raises(ConfigError, match=r"site.yaml is not UTF-8 text: .* position 10"):
        read_site(path)


def test_a_date_that_does_not_exist_is_one_line(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("more: {begin: 2026-13-01}\n")
    with pytest.raises(ConfigError, match=r"site.yaml: no YAML: month must be in 1..12"):
        read_site(path)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ("time: 10, partition: x", "time (instead: launcher.time_h, or max_time_h"),
        ("time: 10, partition: x", "partition (instead: partition (cpu_partition"),
        ('time: "2:00:00"', "time (instead: launcher.time_h"),
        ("gpus-per-node: 2", "gpus-per-node (instead: gres: gpu:<type>"),
        ("gpus_per_node: 2", "gpus_per_node (instead: gres: gpu:<type>"),
        ("job_name: mine", "job_name (instead: nothing: submissions are found"),
        ("job-name: mine", "job-name (instead: nothing: submissions are found"),
        ("--mem: 4G", "--mem (instead: memory_gb)"),
        ("cpus_per_task: 2", "cpus_per_task (instead: launcher.cpus)"),
        ("no-requeue: true", "no-requeue (instead: nothing: an interrupted run is requeued"),
    ],
)
def test_an_option_that_each_job_sets_itself_is_refused_in_either_spelling(tmp_path, more, said):
    """In `more` it replaced the job's, whose table, limit and name said otherwise."""
    path = tmp_path / "site.yaml"
    path.write_text(f"more: {{{more}}}\n")
    with pytest.raises(ConfigError) as error:
        read_site(path)
    assert f"{path}:\nmore: every job sets these options itself" in str(error.value)
    assert said in str(error.value)


@pytest.mark.parametrize("value", ["24:00:00", "0:10:00", "1-12:00:00", "2:00", '"24"', "86400", "1440.5"])
def test_a_limit_in_another_notation_than_hours_is_refused(tmp_path, value):
    """YAML 1.1 takes 24:00:00 for 86400."""
    path = tmp_path / "site.yaml"
    path.write_text(f"max_time_h: {value}\n")
    with pytest.raises(ConfigError, match="a number of hours, at most 1000: max_time_h: 24 for Slurm's 24:00:00"):
        read_site(path)


def test_a_time_of_day_stays_as_it_is_written(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("max_time_h: 1_0.5\nmore: {begin: 16:00, nice: 100}\n")
    site = read_site(path)
    assert (site.max_time_h, site.more) == (10.5, {"begin": "16:00", "nice": 100})


def test_a_name_of_digits_stays_as_it_is_written_or_is_refused(tmp_path):
    """YAML 1.1 reads 0123 as 83, in base 8."""
    path = tmp_path / "site.yaml"
    path.write_text("account: 0123\nmemory_gb: 0\nmore: {reservation: 010, nice: 0}\n")
    site = read_site(path)
    assert (site.account, site.memory_gb, site.more) == ("0123", 0, {"reservation": "010", "nice": 0})
    for value in ("123", "off", "1.5"):
        path.write_text(f"account: {value}\n")
        with pytest.raises(ConfigError, match=r"account: got .*; write a name that YAML reads as a value in"):
            read_site(path)


@pytest.mark.parametrize("text", ["1_2", "2026_11", "0x10", "0b11", "1.10", "+5", "1_0.5", "1.0e+3", ".inf", "010"])
def test_a_value_of_more_that_yaml_reads_as_another_number_stays_as_it_is_written(tmp_path, text):
    """exclude: 1_2 excluded the node 12, licenses: 1.10 asked for 1.1."""
    path = tmp_path / "site.yaml"
    path.write_text(f"more: {{<<: {{exclude: {text}}}, nice: 100, share: 1.5, exclusive: TRUE, hold: false}}\n")
    more = read_site(path).more
    assert more == {"exclude": text, "nice": 100, "share": 1.5, "exclusive": True}
    assert [type(value) for value in more.values()] == [str, int, float, bool]


@pytest.mark.parametrize("word", ["on", "Off", "yes", "NO"])
def test_a_word_of_more_that_yaml_reads_as_true_or_false_is_refused(tmp_path, word):
    """comment: on was --comment without a text, comment: off was left out."""
    path = tmp_path / "site.yaml"
    path.write_text(f"more: {{comment: {word}, exclusive: true}}\n")
    with pytest.raises(ConfigError, match=f"more: comment: got {word}; write a name that YAML reads as a value in q"):
        read_site(path)
    path.write_text(f'more: {{comment: "{word}"}}\n')
    assert read_site(path).more == {"comment": word}


@pytest.mark.parametrize("text", ["0x1F", "2026_11", "1.10", "off", "TRUE", "123"])
@pytest.mark.parametrize("key", ["partition", "account", "preset", "gres", "memory_gb"])
def test_a_value_that_is_refused_is_shown_as_it_is_written(tmp_path, key, text):
    """account: 0x1F was refused with "got 31"."""
    path = tmp_path / "site.yaml"
    path.write_text(f"{key}: {text}\n")
    if key == "memory_gb" and not text.isalpha():
        assert type(read_site(path).memory_gb) is float
        return
    with pytest.raises(ConfigError, match=f"{key}: got {text};"):
        read_site(path)


def test_a_number_of_hours_may_be_written_as_yaml_allows(tmp_path):
    path = tmp_path / "site.yaml"
    for text, hours in (("24.50", 24.5), ("0x18", 24), ("1_0", 10)):
        path.write_text(f"max_time_h: {text}\n")
        assert read_site(path).max_time_h == hours
    path.write_text("max_time_h: 1_440\n")
    with pytest.raises(ConfigError, match="max_time_h: got 1_440; it is a number of hours"):
        read_site(path)


@pytest.mark.parametrize("key", ["partition", "cpu_partition", "account", "qos", "constraint"])
def test_a_name_of_two_words_is_refused(tmp_path, key):
    """sbatch would take the second one for the script."""
    path = tmp_path / "site.yaml"
    path.write_text(f'{key}: "gpu a"\n')
    with pytest.raises(ConfigError, match=f"{key}: got 'gpu a'; allowed: a name without spaces"):
        read_site(path)


def test_a_nested_value_of_an_option_is_refused(tmp_path):
    path = tmp_path / "site.yaml"
    path.write_text("more: {nice: {a: 1}, exclude: [n1, n2], exclusive: true, reservation: rl}\n")
    with pytest.raises(ConfigError, match="more: nice, exclude: not the value of an option of sbatch") as error:
        read_site(path)
    assert '"n1,n2"' in str(error.value)


@pytest.mark.parametrize("gres", ["nvme:1", "npu", "gpu:a800,nvme:1", "shard:4", "tmp:gpu:1", "GPU"])
def test_a_gres_that_names_no_gpu_is_refused(tmp_path, gres):
    """A job of 4 GPUs asked for 4 of it, and for no GPU."""
    path = tmp_path / "site.yaml"
    path.write_text(f"gres: {gres}\n")
    with pytest.raises(ConfigError) as error:
        read_site(path)
    assert f"{path}:\ngres: got '{gres}'; it names the GPUs that jobs ask for, allowed: gpu, gpu:<type>." in str(
        error.value
    )
    assert 'more: {gres: "nvme:1"}' in str(error.value)


@pytest.mark.parametrize(
    ("gres", "asked"),
    [("gpu", "gpu:2"), ("gpu:4", "gpu:2"), ("gpu:a800:4", "gpu:a800:2"), ("gpu:1g.10gb", "gpu:1g.10gb:2")],
)
def test_each_job_asks_for_its_own_number_of_the_gpus_that_gres_names(gres, asked):
    assert Site(gres=gres).gpu_flags(2) == {"gres": asked}


def test_more_may_name_other_resources_next_to_the_gpus():
    site = Site(gres="gpu:a800", more={"gres": "nvme:1"})
    assert site.gpu_flags(2) == {"gres": "gpu:a800:2,nvme:1"}
    with pytest.raises(ValueError, match=r"take them out: gres \(instead: gres: gpu:<type>"):
        Site(more={"gres": "nvme:1,gpu:2"})


def test_a_preset_is_chosen_by_its_name():
    assert read_site("gres").gpu_flags(2) == {"gres": "gpu:2"}
    assert read_site("whole_nodes").memory_flag(128) == "0"


def test_your_own_file_is_named_by_a_variable_and_does_not_change_the_run(tmp_path, monkeypatch):
    before = compose_run(["launcher=slurm_a800x4"])
    monkeypatch.setenv("SCPO_SITE", str(tmp_path / "mine.yaml"))
    compose_files.cache_clear()
    mine = compose_run(["launcher=slurm_a800x4"])
    compose_files.cache_clear()
    assert (before.launcher.site, mine.launcher.site) == ("slurm/site.yaml", str(tmp_path / "mine.yaml"))
    assert run_id(before) == run_id(mine)
    # As if it were not set.
    monkeypatch.setenv("SCPO_SITE", "")
    unset = compose_run(["launcher=slurm_a800x4"])
    compose_files.cache_clear()
    assert unset.launcher.site == "slurm/site.yaml"


def test_the_default_file_is_found_from_any_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert read_site("slurm/site.yaml") == read_site(SHIPPED)
    (tmp_path / "slurm").mkdir()
    (tmp_path / "slurm" / "site.yaml").write_text("partition: here\n")
    assert read_site("slurm/site.yaml").partition == "here"


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="No such file"):
        read_site(tmp_path / "none.yaml")


def test_keys_in_clear_are_found_by_name_and_by_shape():
    site = Site(setup=("export MY_PASSWORD=a", f"login hf_{'aB' * 17}", "export OTHER=b"), more={"nice": 100})
    assert "holds MY_PASSWORD, a Hugging Face token in clear" in site.secrets_in_clear()
    assert site.redacted().setup == ("export MY_PASSWORD=[redacted]", "login [redacted]", "export OTHER=b")
    assert "OTHER" in site.secrets_in_clear(["OTHER"])
    assert site.redacted().more == {"nice": 100}
    assert read_site(SHIPPED).secrets_in_clear() is None


@pytest.mark.parametrize("option", ["token", "--api-key", "auth_token", "password"])
def test_an_option_that_is_named_as_a_secret_is_found_and_not_shown(option):
    site = Site(more={option: "site-secret-1", "wckey": "physics", "comment": "fine"})
    assert site.redacted().more == {option: "[redacted]", "wckey": "physics", "comment": "fine"}
    name = option.strip("-").replace("_", "-")
    assert f"holds the option --{name} in clear" in site.secrets_in_clear()
    refusal = f"sbatch: unrecognized option '--{name}=site-secret-1'"
    assert site.without_secrets(refusal) == f"sbatch: unrecognized option '--{name}=[redacted]'"


def test_what_the_notes_recognise_is_not_shown_in_a_refusal_either(monkeypatch):
    monkeypatch.setenv("LAB_KEY_OF_MINE", "environment-secret")
    site = Site(setup=("export MY_PASSWORD='a long one'",), more={"commnt": "token=site-secret-2"})
    refusal = "unrecognized option '--commnt=token=site-secret-2' (a long one, environment-secret)"
    shown = "unrecognized option '--commnt=token=[redacted]' ([redacted], [redacted])"
    assert site.without_secrets(refusal, ["LAB_KEY_OF_MINE"]) == shown
    short = Site(setup=('export WANDB_API_KEY=""', "export DB_PASSWORD=a"), more={"token": "b"})
    message = "sbatch: error: invalid partition, --token=b"
    assert short.without_secrets(message) == message.replace("=b", "=[redacted]")


@pytest.mark.parametrize(
    ("line", "shown", "named"),
    [
        (
            f"wandb login --relogin {'0a' * 20}",
            "wandb login --relogin [redacted]",
            "a W&B key, the argument of wandb login",
        ),
        ("wandb login --host https://w.org my-key", "wandb login --host https://w.org [redacted]", "of wandb login"),
        ("hf auth login --token my-token", "hf auth login --token [redacted]", "the argument of --token"),
        (f"echo {'0a' * 20} | wandb login", "echo [redacted] | wandb login", "a W&B key"),
        ("wandb login && module load cuda", "wandb login && module load cuda", None),
        ("wandb login $KEY", "wandb login $KEY", None),
    ],
)
def test_a_key_that_is_passed_as_an_argument_is_found_and_not_shown(line, shown, named):
    site = Site(setup=(line,))
    assert site.redacted().setup == (shown,)
    found = site.secrets_in_clear()
    assert found is None if named is None else named in found


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "setup: wandb login my-key",
            'setup: got a value of type str, not shown; a list is expected: setup: ["<text>"]',
        ),
        ("setup: [{wandb login: my-key}]", "setup.0: got a value of type dict, not shown"),
        ("setup: [1, yes]", "setup.1: got a value of type bool, not shown"),
        ("wandb_kye: 1_0", "unknown key wandb_kye (got a value of type int, not shown)"),
        ("more: my-key", "more: got a value of type str, not shown"),
        ("wandb_key: my-key", "unknown key wandb_key (got a value of type str, not shown)"),
        ("wandb login my-key", "key: value lines are expected, got a value of type str"),
    ],
)
def test_what_may_be_a_key_is_not_shown_with_what_is_wrong_with_it(tmp_path, text, said):
    (tmp_path / "site.yaml").write_text(text)
    with pytest.raises(ConfigError) as error:
        read_site(tmp_path / "site.yaml")
    assert said in str(error.value)
    assert "my-key" not in str(error.value)
