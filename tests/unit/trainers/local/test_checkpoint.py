import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from scpo.advantages.gae import CriticSettings
from scpo.errors import RecordError, RecordWriteError
from scpo.policies.critic import Targets, make_critic, update_critic, values
from scpo.records.run_folders import CHECKPOINT_MARKER as MARKER
from scpo.shaping.reference_buffer import ReferenceBuffer
from scpo.states.effects import ActMemory
from scpo.trainers.local.checkpoint import Learned, complete_checkpoints, load_checkpoint, save_checkpoint
from tests.support.small_disks import NoMountsError, fill, small_disk
from tests.support.tiny import tiny_policy
from tests.unit.trainers.local.test_update import trainer_config


def trained():
    policy = tiny_policy()
    optimizer = torch.optim.AdamW(policy.model.parameters(), lr=0.01)
    step(policy, optimizer)
    return policy, optimizer


def step(policy, optimizer):
    logits, _, _ = policy.response_logits([(3, 4, 5)], [(4, 1)])
    optimizer.zero_grad()
    logits.logsumexp(-1).sum().backward()
    optimizer.step()


def weights(policy):
    return torch.cat([parameter.detach().flatten() for parameter in policy.model.parameters()])


def save(tmp_path, number, policy, optimizer, keep=2):
    return save_checkpoint(tmp_path, number, Learned(policy, optimizer), keep=keep)


def test_training_continues_from_a_checkpoint_bit_for_bit(tmp_path):
    policy, optimizer = trained()
    save(tmp_path, 1, policy, optimizer)
    step(policy, optimizer)
    other = tiny_policy()
    other_optimizer = torch.optim.AdamW(other.model.parameters(), lr=0.01)
    load_checkpoint(complete_checkpoints(tmp_path)[0], Learned(other, other_optimizer))
    step(other, other_optimizer)
    assert torch.equal(weights(policy), weights(other))


def test_a_critic_continues_bit_for_bit_too(tmp_path):
    generations = tiny_policy().generate(["take mug 2 >", "shelf 3"], 1.0, np.random.default_rng(0).random((2, 6)))

    def learn(critic, seed):
        value_NL = values(critic, generations, 8)
        targets = Targets(value_NL, np.ones_like(value_NL))
        update_critic(critic, generations, targets, trainer_config(), rng=np.random.default_rng(seed))

    def new_critic():
        return make_critic(tiny_policy(), CriticSettings(learning_rate=0.01, value_clip=0.5), weight_decay=0.01)

    policy, optimizer = trained()
    critic, other = new_critic(), new_critic()
    learn(critic, 0)
    save_checkpoint(tmp_path, 1, Learned(policy, optimizer, critic=critic), keep=1)
    learn(critic, 1)
    load_checkpoint(complete_checkpoints(tmp_path)[0], Learned(policy, optimizer, critic=other))
    learn(other, 1)
    pairs = zip(critic.model.state_dict().values(), other.model.state_dict().values(), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_a_checkpoint_without_a_critic_is_refused_by_a_method_that_has_one(tmp_path):
    policy, optimizer = trained()
    checkpoint = save(tmp_path, 5, policy, optimizer)
    critic = make_critic(policy, CriticSettings(learning_rate=0.01, value_clip=0.5), weight_decay=0.0)
    with pytest.raises(RecordError, match="step_00005 does not fit"):
        load_checkpoint(checkpoint, Learned(policy, optimizer, critic=critic))


def test_only_the_newest_are_kept(tmp_path):
    policy, optimizer = trained()
    for number in (5, 10, 15):
        save(tmp_path, number, policy, optimizer)
    assert [checkpoint.step for checkpoint in complete_checkpoints(tmp_path)] == [10, 15]


@pytest.mark.parametrize("damage", ["truncated", "no marker", "torn marker", "missing file"])
def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(tmp_path, damage):
    policy, optimizer = trained()
    for number in (5, 10):
        save(tmp_path, number, policy, optimizer)
    folder = tmp_path / "step_00010"
    weights_file = folder / "model.safetensors"
    if damage == "truncated":
        weights_file.write_bytes(weights_file.read_bytes()[:-1])
    elif damage == "no marker":
        (folder / MARKER).unlink()
    elif damage == "torn marker":
        (folder / MARKER).write_text((folder / MARKER).read_text()[:-3])
    else:
        weights_file.unlink()
    assert [checkpoint.step for checkpoint in complete_checkpoints(tmp_path)] == [5]


def test_a_checkpoint_of_another_model_is_refused_by_name(tmp_path):
    policy, optimizer = trained()
    checkpoint = save(tmp_path, 5, policy, optimizer)
    model = torch.nn.Linear(2, 2)
    other = SimpleNamespace(model=model, device=torch.device("cpu"))
    with pytest.raises(RecordError, match="step_00005 does not fit"):
        load_checkpoint(checkpoint, Learned(other, torch.optim.AdamW(model.parameters())))


def test_a_failed_write_leaves_earlier_checkpoints_and_no_scratch(tmp_path, monkeypatch):
    policy, optimizer = trained()
    save(tmp_path, 5, policy, optimizer)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scpo.trainers.local.checkpoint.sync", full)
    free = iter([SimpleNamespace(free=4096), SimpleNamespace(free=8_000_000)])  # once the failed one is removed
    monkeypatch.setattr("scpo.records.files.shutil.disk_usage", lambda _: next(free))
    said = r"No space left .* 4096 bytes were free there after \d{4,} of its bytes.*; intact: step 5\."
    with pytest.raises(RecordWriteError, match=said):
        save(tmp_path, 10, policy, optimizer)
    assert [path.name for path in tmp_path.iterdir()] == ["step_00005"]


def test_a_failed_write_of_the_first_checkpoint_speaks_of_no_earlier_one(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("scpo.trainers.local.checkpoint.sync", full)
    with pytest.raises(RecordWriteError, match="there is no other checkpoint"):
        save(tmp_path, 0, *trained())


def test_a_checkpoint_is_a_hugging_face_folder(tmp_path):
    from scpo.policies.model import load_pretrained

    policy, optimizer = trained()
    checkpoint = save(tmp_path, 5, policy, optimizer)
    model, tokenizer = load_pretrained(str(checkpoint.folder))
    assert json.loads((checkpoint.folder / "config.json").read_text())["model_type"] == "qwen2"
    assert torch.equal(model.lm_head.weight, policy.model.lm_head.weight)
    text = "go to desk 1 > <action> take mug 2 </action>"
    assert tokenizer(text)["input_ids"] == policy.tokenizer(text)["input_ids"]
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_remembered_references_come_back(tmp_path):
    policy, optimizer = trained()
    buffer, other = ReferenceBuffer(None), ReferenceBuffer(None)
    buffer.keep("a game", 3, ("look || a room",))
    save_checkpoint(tmp_path, 4, Learned(policy, optimizer, buffer=buffer), keep=1)
    load_checkpoint(complete_checkpoints(tmp_path)[0], Learned(policy, optimizer, buffer=other))
    assert other.find("a game", 5) == (3, ("look || a room",))


def test_a_checkpoint_without_references_is_refused_by_a_method_that_remembers(tmp_path):
    policy, optimizer = trained()
    with pytest.raises(RecordError, match="step_00005 does not fit"):
        load_checkpoint(save(tmp_path, 5, policy, optimizer), Learned(policy, optimizer, buffer=ReferenceBuffer(None)))


def test_what_a_state_identity_remembers_comes_back(tmp_path):
    policy, optimizer = trained()
    memory, other = ActMemory(), ActMemory()
    memory.verbs = {"open", "clean"}
    save_checkpoint(tmp_path, 4, Learned(policy, optimizer, memory=memory), keep=1)
    load_checkpoint(complete_checkpoints(tmp_path)[0], Learned(policy, optimizer, memory=other))
    assert other.verbs == {"open", "clean"}


def test_on_a_full_disk_nothing_is_left_of_a_checkpoint_and_the_one_before_is_intact(tmp_path):
    policy, optimizer = trained()
    try:
        with small_disk(tmp_path / "disk", "2m") as disk:
            size = shutil.disk_usage(disk)
            whole = save(disk, 1, policy, optimizer)
            needed = size.free - shutil.disk_usage(disk).free
            for share in (0, 0.1, 0.3, 0.5, 0.7, 0.9, 0.98):  # of what it needs: every part is the one that is refused
                filler = fill(disk, int(share * needed))
                with pytest.raises(
                    RecordWriteError, match=r"step_00002 could not be written .*; intact: step 1\. Free some"
                ):
                    save(disk, 2, policy, optimizer)
                assert [path.name for path in disk.iterdir() if path != filler] == [whole.folder.name]
                filler.unlink()
            assert whole.damage() is None
            save(disk, 2, policy, optimizer)
            assert [one.step for one in complete_checkpoints(disk)] == [1, 2]
    except NoMountsError as error:
        pytest.skip(str(error))
