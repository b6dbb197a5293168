import pytest

from scpo.errors import ConfigError
from sweeps.compose.configuration import compose_run
from sweeps.compose.resources import Resources, check_fits, resources
from tests.support.matrices import expanded

WANTED = {
    "a method that verl trains": (["scale=paper"], Resources(1, 4, 32, 128)),
    "the large model": (["scale=paper", "model=qwen2_5_7b"], Resources(1, 4, 32, 304)),
    "one card": (["scale=paper", "trainer=verl_1gpu"], Resources(1, 1, 16, 128)),
    "two nodes": (["scale=paper", "trainer.verl.nodes=2"], Resources(2, 4, 32, 104)),
    "an evaluation": (["scale=paper", "method=react"], Resources(1, 1, 8, 32)),
    "a model behind an API": (["scale=paper", "method=plain", "model=gpt_4o"], Resources(1, 0, 2, 8)),
    "a language model in one process": (["scale=paper", "trainer=local"], Resources(1, 1, 8, 32)),
    "a small policy": ([], Resources(1, 0, 2, 4)),
    "verl for the CPU": (["trainer=verl_cpu"], Resources(1, 0, 16, 88)),
}


@pytest.mark.parametrize(("words", "needed"), WANTED.values(), ids=WANTED)
def test_what_a_run_asks_for_follows_from_method_model_and_trainer(words, needed):
    assert resources(compose_run(words)) == needed


def test_the_launcher_may_say_otherwise():
    given = compose_run(["scale=paper", "launcher=slurm_a800x4", "launcher.gpus=8", "launcher.cpus=4"])
    assert (resources(given).gpus, resources(given).cpus) == (8, 4)


BAD = {
    "too few GPUs": (["launcher.gpus=2"], r"launcher\.gpus=2, the run takes 4 of each node .*trainer=verl_1gpu"),
    "too few cores": (["launcher.cpus=8"], r"launcher\.cpus=8, verl on 4 GPUs needs 15 CPU cores.*or 15 and more"),
    "small GPUs": (["launcher.gpu_gb=24"], r"1\.5B with trainer=verl needs about \d+ GiB of each GPU"),
    "one process": (["trainer=local", "model=qwen2_5_7b"], r"7B with trainer=local needs about \d+ GiB of each GPU"),
    "an evaluation": (["method=react", "model=qwen2_5_7b", "launcher.gpu_gb=16"], r"a GPU has 16\. Fewer rows at once"),
}


@pytest.mark.parametrize(("words", "message"), BAD.values(), ids=BAD)
def test_a_job_that_its_run_cannot_start_on_is_refused_in_one_line(words, message):
    config = compose_run(["scale=paper", "launcher=slurm_a800x4", *words])
    with pytest.raises(ConfigError, match=message) as refused:
        check_fits(config, config.launcher.gpu_gb)
    assert "\n" not in str(refused.value)


def test_an_evaluation_takes_what_it_is_given():
    check_fits(compose_run(["scale=paper", "method=react", "launcher=slurm_a800x4", "launcher.cpus=2"]), 80.0)


def test_every_row_of_the_main_table_fits_the_papers_gpus():
    for cell in expanded("main_table", "scale=paper").cells:
        check_fits(cell.config, 80.0)
