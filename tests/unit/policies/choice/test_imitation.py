import pytest
import torch

from scpo.envs.base import Demonstration
from scpo.errors import ConfigError
from scpo.policies.choice.imitation import imitate
from tests.support.choices import PROMPTS, choice_config, choice_policy

SHOWN = Demonstration("train/a", PROMPTS[:3], ["go to desk 1 </action>", "close fridge 1 </action>", "look </action>"])


def probabilities(policy):
    with torch.no_grad():
        ids = [text.encode() for text in SHOWN.prompts]
        return policy.statistics(ids, [(1,), (0,), (1,)], 1.0)[0].logprob_NL[:, 0].exp()


def test_the_demonstrated_commands_become_likelier():
    policy = choice_policy()
    before = probabilities(policy)
    imitate(policy, [SHOWN], choice_config().imitation)
    assert (probabilities(policy) > before).all()


def test_the_same_demonstrations_make_the_same_policy():
    first, second = choice_policy(), choice_policy()
    second.generate(PROMPTS, 0.0, None)  # what was read before changes nothing
    losses = [imitate(policy, [SHOWN], choice_config().imitation) for policy in (first, second)]
    assert losses[0] == losses[1]
    assert torch.equal(first.model.table, second.model.table)


def test_a_demonstrated_command_that_is_not_listed_is_refused():
    shown = Demonstration("train/a", PROMPTS[:1], ["fly </action>"])
    with pytest.raises(ConfigError, match="command 'fly', which its prompt does not list"):
        imitate(choice_policy(), [shown], choice_config().imitation)


def test_a_stop_is_heeded_between_updates():
    with pytest.raises(KeyboardInterrupt):
        imitate(choice_policy(), [SHOWN], choice_config().imitation, lambda: True)
