from collections import Counter
from dataclasses import replace

import pytest

from scpo.envs import make_environment
from scpo.envs.webshop.catalogue.goals import goal_order
from scpo.envs.webshop.demonstrations import buy, choose_and_pay
from scpo.envs.webshop.panels import overlap
from scpo.errors import CatalogueError, PanelError
from sweeps.compose.configuration import compose_run
from tests.support.webshop_data import official_files


def config(*words, **changes):
    settings = {"nouns": "stop_list", **changes}
    return compose_run(["env=webshop", "scale=paper", *words]).env.model_copy(
        update={"catalogue": "generated", **settings}
    )


@pytest.fixture(scope="module")
def stack():
    return make_environment(config(), cache_dir=None)


@pytest.fixture(scope="module")
def paper():
    return make_environment(config("env.setting=paper"), cache_dir=None)


def say(action):
    return f"<think>so</think><action>{action}</action>"


def play(environment, actions, task=None):
    """Play the actions that the episode's shop is given to plan, and return the episode and the last result."""
    episode = environment.start(task or environment.panel("test").tasks[0], 0)
    for action in actions(episode.shop):
        result = episode.step(say(action))
        if result.done:
            break
    return episode, result


def half_right(shop):
    """Everything but the options: a purchase that earns less than the full score."""
    yield from (
        action for action in buy(shop) if action not in {f"click[{value}]" for value in shop.goal.options.values()}
    )


def with_options(environment):
    return next(t for t in environment.panel("test").tasks if environment.panels.goal(t.id).options)


def test_a_full_score_wins_and_earns_ten_in_both_settings(stack, paper):
    for environment in (stack, paper):
        _, result = play(environment, buy)
        assert (result.won, result.done, result.reward, result.score) == (True, True, 10.0, 1.0)


def test_a_partial_score_earns_nothing_in_the_stack_and_ten_times_the_score_in_the_paper(stack, paper):
    task = with_options(stack)
    _, result = play(stack, half_right, task)
    assert (result.won, result.done, result.reward) == (False, True, 0.0)
    assert 0 < result.score < 1
    _, graded = play(paper, half_right, task)
    assert (graded.won, graded.reward, graded.score) == (False, pytest.approx(10 * result.score), result.score)


def test_the_settings_are_those_of_the_method_document():
    for name, reward, mode, rows, tokens in (
        ("stack", "won", "mean_norm", 64, 4096), ("paper", "score", "mean_std_norm", 256, 2048),
    ):  # fmt: skip
        run = compose_run(["env=webshop", f"env.setting={name}", "scale=paper"])
        assert (run.env.reward, run.env.reward_scale, run.env.horizon, run.env.success_threshold) == (
            reward,
            10.0,
            15,
            9.0,
        )
        assert run.method.estimator.normalisation == mode
        assert (run.trainer.mini_batch_rows, run.trainer.max_prompt_tokens) == (rows, tokens)
        assert run.method.shaper.alpha == 1.0
        assert run.method.shaper.step_filter.no_op_if_unchanged


def test_no_step_text_reveals_the_score(paper):
    task = with_options(paper)
    lost, result = play(paper, half_right, task)
    assert "score" not in result.observation.lower()
    assert str(result.score) not in result.observation
    assert result.observation.startswith("Thank you for shopping with us!")
    assert result.observation.endswith("Goal [SEP] None")
    # The same purchase under a goal that it fulfils reads the same.
    other = paper.start(task, 0)
    other.shop._goal = replace(other.shop.goal, options={})
    for _, action in lost.transcript.history:
        won = other.step(say(action))
    assert won.won
    assert won.observation == result.observation


def test_anchors_are_the_page_after_the_instruction(stack):
    episode = stack.start(stack.panel("test").tasks[0], 0)
    assert episode.observation == "'Search'"
    result = episode.step(say("search[shampoo]"))
    assert result.observation == episode.observation
    assert episode.observation.startswith("'Back to Search' [SEP] 'Page 1 (Total results: ")
    assert episode.shop.goal.instruction not in episode.observation


def test_what_changes_nothing_is_valid_and_answers_with_the_same_page(stack):
    episode = stack.start(stack.panel("test").tasks[0], 0)
    before = episode.observation
    result = episode.step(say("click[nowhere]"))
    assert (result.valid, result.observation, result.reward, result.done) == (True, before, 0.0, False)


def test_the_episode_ends_at_the_horizon(stack):
    episode = stack.start(stack.panel("test").tasks[0], 0)
    done = [episode.step("nothing").done for _ in range(15)]
    assert done == [False] * 14 + [True]
    with pytest.raises(RuntimeError, match="over after 15 steps"):
        episode.step("more")


def test_test_goals_are_the_first_500_and_never_trained_on(stack):
    train, test = stack.panel("train"), stack.panel("test")
    assert [task.id for task in test.tasks] == [f"233/{index:06d}" for index in range(500)]
    assert not {task.sha256 for task in train.tasks} & {task.sha256 for task in test.tasks}
    assert len(train.tasks) + 500 == len(goal_order(stack.catalogue, 233, False))


def test_panels_are_the_same_in_every_process(stack):
    again = make_environment(config(), cache_dir=None)
    assert again.panel("test").sha256 == stack.panel("test").sha256
    expected = "62409b3eac9a61481f61d72bf3516d5a511270d67d50f6943a00fff3106ed9c0"
    assert stack.panel("test").sha256 == expected, "the generated catalogue or the goals changed: old results are void"


def test_a_drawn_panel_is_balanced_over_categories():
    mini = compose_run(["env=webshop"]).env
    panel = make_environment(mini, cache_dir=None).panel("train")
    counts = Counter(task.family for task in panel.tasks).values()
    assert max(counts) - min(counts) <= 1


def test_goals_that_are_held_out_are_not_trained_on():
    panel = {"split": "train", "goals": 20, "seed": 0, "held_out": True}
    made = config()
    held = made.model_validate({**made.model_dump(), "validation_panels": {"tuning": panel}})
    environment = make_environment(held, cache_dir=None)
    tuning, train = (set(environment.panel(name).tasks) for name in ("tuning", "train"))
    assert len(tuning) == 20
    assert not tuning & train
    assert len(train) == len(make_environment(made, cache_dir=None).panel("train").tasks) - 20


def test_the_stacks_panels_share_every_goal_and_the_fixed_ones_none(stack):
    assert overlap(stack.panels).goals == 0.0
    same = make_environment(config(order="verl_agent"), cache_dir=None)
    assert overlap(same.panels).goals == 1.0
    workers = [task.id.split("/")[0] for task in same.panel("test").tasks]
    assert sorted(map(int, workers)) == list(range(1000, 1128))
    assert {task_id.split("/")[0] for ids in same.panels.candidates("train").values() for task_id in ids} == {
        str(seed) for seed in range(16)
    }


def test_a_changed_goal_is_noticed(stack):
    task = stack.panel("test").tasks[0]
    with pytest.raises(CatalogueError, match="changed: it hashes to"):
        stack.start(type(task)(task.id, task.family, "0" * 64), 0)


def test_impossible_requests_are_clear_errors(stack):
    with pytest.raises(PanelError, match="no panel 'dev'; panels of this configuration: train, probe, test"):
        stack.panel("dev")
    with pytest.raises(PanelError, match="no train goals"):
        make_environment(config(test_goals=10**6), cache_dir=None).panel("train")
    with pytest.raises(CatalogueError, match=r"set machine.data.webshop or WEBSHOP_DATA"):
        make_environment(config().model_copy(update={"catalogue": "official"}), cache_dir=None)
    with pytest.raises(CatalogueError, match=r"human goals need items_human_ins.json"):
        make_environment(config(goals="human"), cache_dir=None).panel("test")


def test_the_official_files_give_the_panels_of_6910_goals():
    official = config().model_copy(update={"catalogue": "official"})
    environment = make_environment(official, cache_dir=None, data=str(official_files()))
    assert len(environment.panel("test").tasks) == 500
    assert len(environment.panel("train").tasks) == 6410


def test_the_scripted_shopper_reaches_the_full_score_on_every_test_goal(stack):
    for task in stack.panel("test").tasks:
        assert play(stack, buy, task)[1].won, task.id


def test_searching_for_the_wish_is_needed(stack):
    """Without words of the wish, the best a shopper can do is to look at what some search shows."""

    def without_search(shop):
        yield "search[great]"
        target = shop.goal.asin.lower()
        if target in shop.available_actions()["clickables"]:
            yield f"click[{target}]"
            yield from choose_and_pay(shop.goal)
        else:
            yield from ["click[" + shop.available_actions()["clickables"][2] + "]", "click[buy now]"]

    results = [play(stack, without_search, task)[1] for task in stack.panel("test").tasks[:200]]
    assert sum(result.won for result in results) < 10
