import json

from analysis.sources.configurations import LEFT_OUT_DEFAULTS, configuration_of, leaves, same_games, shown_value
from analysis.sources.settings import own_settings, setting_differences, variants
from scpo.schema.scorer_defaults import scorer_defaults
from scpo.strict import Strict

RUN = {"seed": 0, "method": {"name": "scpo"}, "machine": {"threads": 1}, "wandb": {"mode": "offline"}}


def config(trainer, **others):
    return RUN | {"trainer": trainer} | others


def test_seed_method_and_machine_set_nothing_apart():
    other = {"seed": 1, "method": {"name": "gigpo"}, "machine": {"threads": 8}, "wandb": {"mode": "online"}}
    assert setting_differences(config({"steps": 1}), other | {"trainer": {"steps": 1}}) == ""


def test_a_part_of_another_kind_is_told_by_its_name():
    verl = config({"name": "verl", "steps": 150, "verl": {"gpus": 4, "engine": "vllm"}})
    local = config({"name": "local", "steps": 150})
    assert setting_differences(local, verl) == "trainer=local (the others: verl)"
    lexical, exact = (config({}, scorer={"kind": name, "name": name}) for name in ("lexical", "exact"))
    assert setting_differences(lexical, exact) == "scorer=lexical (the others: exact)"


def test_what_both_kinds_have_and_differ_in_is_told_too():
    verl = config({"name": "verl", "steps": 150, "verl": {"gpus": 4}})
    local = config({"name": "local", "steps": 160})
    assert setting_differences(local, verl) == "trainer=local (the others: verl); trainer.steps=160 (the others: 150)"


def test_the_clip_range_that_a_method_brings_is_the_methods():
    one, other = (config({"loss": {"clip_high": value}}) for value in (0.28, 0.2))
    assert setting_differences(one, other) == ""


def test_many_differences_are_counted():
    one, other = (config({f"k{i}": i + shift for i in range(5)}) for shift in (0, 10))
    assert setting_differences(one, other).endswith("trainer.k2=2 (the others: 12); 2 more settings")


def test_other_games_are_told_and_do_not_compare():
    one, other = {"valid_seen": {"sha256": "a"}}, {"valid_seen": {"sha256": "b"}, "test": {"sha256": "c"}}
    assert not same_games(one, other)
    assert same_games(one, {"test": {"sha256": "c"}})
    assert setting_differences(RUN, RUN, (one, other)) == "other tasks in the panel valid_seen"


def test_a_row_is_named_by_the_choice_of_a_section_and_not_by_what_follows_from_it():
    shared = {"method": {"name": "scpo"}, "env": {"kind": "alfworld"}}
    lexical = shared | {"scorer": {"name": "lexical", "kind": "lexical"}}
    exact = shared | {"scorer": {"name": "exact", "kind": "exact"}}
    defaults = scorer_defaults("minilm")
    model = shared | {"scorer": defaults}
    known = [json.dumps(config, sort_keys=True) for config in (lexical, exact, model)]
    assert own_settings(known[1], known) == {"scorer.name": "scorer=exact"}
    assert variants(known[1:2], known[0]) == [(("scorer", "exact"),)]
    # What the choice leaves open is named, and a kind without a choice by name, too.
    longer = json.dumps(shared | {"scorer": defaults | {"max_tokens": 256}}, sort_keys=True)
    assert own_settings(longer, [*known, longer])["scorer.max_tokens"] == "max_tokens=256"
    other = json.dumps(lexical | {"env": {"kind": "shop"}}, sort_keys=True)
    assert own_settings(other, [known[0], other]) == {"env.kind": "kind=shop"}


def _fields_that_records_leave_out():
    """(key, default) of each field with ``exclude_if``, of all configurations of runs."""
    from scpo.advantages import registry  # noqa: F401 (defines the estimators' settings)
    from scpo.schema import run  # noqa: F401 (defines all others)
    from scpo.shaping import shaper  # noqa: F401

    models = [Strict]
    for model in models:
        models += model.__subclasses__()
        if model.__module__.startswith("scpo."):
            for name, field in model.model_fields.items():
                if field.exclude_if is not None:
                    yield model, name, field.default


def test_every_setting_that_records_leave_out_is_shown_with_its_default():
    """The default was shown as "none": SCPO, credited_states=none."""
    found = {}
    for model, name, default in _fields_that_records_leave_out():
        if default is not None and name != "wordings":
            found.setdefault(name, set()).add((default, model.__name__))
    listed = {end.rpartition(".")[2]: default for end, default in LEFT_OUT_DEFAULTS.items()}
    assert listed.pop("dose") == 0
    assert {name: {default for default, _ in entries} for name, entries in found.items()} == {
        name: {default} for name, default in listed.items()
    }


def test_a_setting_that_a_record_leaves_out_has_its_default_in_labels():
    usual = {"method": {"name": "scpo", "estimator": {"name": "gigpo"}, "shaper": {"theta": 0.6}}}
    credited = {"method": {**usual["method"], "shaper": {"theta": 0.6, "credited_states": "anchor_without_success"}}}
    states = {"method": {**usual["method"], "estimator": {"name": "gigpo", "states": "entities"}}}
    off = {"method": {**usual["method"], "shaper": None}}
    texts = [configuration_of(config) for config in (usual, credited)]
    assert variants(texts) == [(("credited_states", "all"),), (("credited_states", "anchor_without_success"),)]
    texts = [configuration_of(config) for config in (usual, states)]
    assert variants(texts) == [(("states", "exact"),), (("states", "entities"),)]
    assert shown_value(dict(leaves(off)), "method.shaper.credited_states") == "none"
