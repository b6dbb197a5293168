"""verl's agent loop over the environments: one output for each step, with the inputs of credit."""

from __future__ import annotations

import logging
from typing import Any
from uuid import uuid4

from ray.exceptions import RayTaskError
from verl.experimental.agent_loop.agent_loop import AgentLoopBase, AgentLoopMetrics, AgentLoopOutput

from scpo.envs.base import Task
from scpo.errors import RolloutError
from scpo.generation import Generation, Ids
from scpo.policies.encoding import decode, encode, is_success, with_hindsight
from scpo.rollout import Slot
from scpo.schema.method import required
from scpo.schema.run import RunConfig
from scpo.trainers.verl.data import PROBE, TRAIN
from scpo.trainers.verl.episode import Answer, Turn, play
from scpo.trainers.verl.hindsight_pass import HINDSIGHT
from scpo.trainers.verl.workplace import workplace_of

# For every episode, verl warns that it has no rules for a tokenizer without a model type, which is
# intended here.
logging.getLogger("verl.utils.tokenizer.continuous_token_wiring").setLevel(logging.ERROR)

VERSIONS = ("min_global_steps", "max_global_steps")
"""Fields with the oldest and newest version of the weights that sampled a response."""


class EnvironmentLoop(AgentLoopBase):  # type: ignore[misc]  # verl is untyped
    """Registered as ``scpo`` in ``agent_loops.yaml``."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Every prompt is a single message, so verl's rules for joining the turns of a model family
        # do not apply, and their checks would reject small tokenizers.
        super().__init__(*args, **{**kwargs, "hf_model_type": None})

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> list[AgentLoopOutput]:
        """Play the episode of one row of the data; see ``scpo.trainers.verl.data``.

        Args:
            sampling_params: Sampling parameters of verl, for training or validation.
            **kwargs: The columns of the row, with verl's ``session_id`` (number of the sibling) and
                ``global_steps``.

        Returns:
            One output, a row of verl's batch, for each environment step.

        Raises:
            RolloutError: The row is of another training step, or the engine's response is unusable.
            EnvironmentFailure: The environment failed more often than is allowed.
        """
        place = workplace_of(self.config)
        entry = kwargs["extra_info"]
        task = Task(entry["task"], entry["family"], entry["sha256"])
        slot = Slot(entry["group"], entry["repeat"] + kwargs["session_id"], task)

        # The probe is played with the validation, but sampled as in training.
        if entry["panel"] == PROBE:
            sampling_params = {**sampling_params, "temperature": place.config.trainer.temperature}
        # One id for the whole episode, so that verl sends all its turns to the same engine, which
        # has their common prefix in its cache.
        request = uuid4().hex

        async def ask(prompt: str) -> Answer:
            return await self._ask(prompt, sampling_params, request)

        try:
            self._check_schedule(entry, kwargs["global_steps"])
            turns = await play(
                place.environment,
                entry["panel"],
                slot,
                ask,
                retries=place.config.env.failure_retries,
            )
        except Exception as error:
            # verl goes on without this episode's rows after an error, so it is logged for the
            # trainer, with its cause: the text of Ray's error would contain every stack trace.
            cause = error.cause if isinstance(error, RayTaskError) else error
            reason = f"{type(cause).__name__}: {cause}"
            place.failures.append(
                {"step": int(kwargs["global_steps"]), "task": slot.task.id, "reason": reason}
            )
            raise

        return _outputs(turns, self._hindsight(place.config, entry["panel"], turns))

    def _check_schedule(self, entry: dict[str, Any], step: int) -> None:
        """Check that the task is scheduled for the run's present step.

        After a resume, verl's dataloader continues from a state of its own, which may differ.

        Raises:
            RolloutError: The task is scheduled for another step.
        """
        scheduled = entry["index"] // self.data_config.train_batch_size + 1
        if entry["panel"] == TRAIN and scheduled != step:
            raise RolloutError(
                f"task {entry['task']} is scheduled for step {scheduled}, verl asks for it in step "
                f"{step}"
            )

    async def _ask(self, prompt: str, sampling_params: dict[str, Any], request: str) -> Answer:
        """Sample a response to one prompt.

        Raises:
            RolloutError: The response is empty or lacks the weight versions. verl would drop such a
                row or fail on it later.
        """
        ids = encode(self.tokenizer, [prompt])[0]
        # Keep the end of a prompt, which holds the present observation and the admissible commands.
        cut = ids[-self.rollout_config.prompt_length :]
        output = await self.server_manager.generate(
            request_id=request,
            prompt_ids=cut,
            sampling_params={**sampling_params, "max_tokens": self.rollout_config.response_length},
        )
        if not output.token_ids:
            raise RolloutError(
                f"the rollout engine gave an empty response ({output.stop_reason}) to a prompt of "
                f"{len(cut)} tokens"
            )

        # verl's metrics read both fields in every row.
        missing = [name for name in VERSIONS if name not in output.extra_fields]
        if missing:
            raise RolloutError(
                f"the rollout engine's response lacks {', '.join(missing)}, which verl's metrics "
                "need"
            )
        generation = Generation(
            decode(self.tokenizer, output.token_ids),
            tuple(cut),
            tuple(output.token_ids),
            tuple(output.log_probs or ()),
            truncated=len(ids) > len(cut),
        )
        return Answer(generation, {name: output.extra_fields[name] for name in VERSIONS}, prompt)

    def _hindsight(self, config: RunConfig, panel: str, turns: list[Turn]) -> list[Ids] | None:
        """Prompts of all turns after the hindsight text, empty in failures; None if unused."""
        if panel != TRAIN or "hindsight_logprob" not in required(config.method):
            return None
        if not is_success(sum(turn.row.reward for turn in turns), config.env.success_threshold):
            return [() for _ in turns]
        return with_hindsight(
            lambda texts: encode(self.tokenizer, texts),
            config.trained.estimator.hindsight_prompt,  # type: ignore[attr-defined]  # see its requires
            [turn.answer.prompt for turn in turns],
            final_observation=turns[-1].row.next_observation,
            won=turns[-1].row.won,
            max_prompt_tokens=self.rollout_config.prompt_length,
        )


def _outputs(turns: list[Turn], hindsight: list[Ids] | None) -> list[AgentLoopOutput]:
    """One output for each turn; all have the same fields, because verl stacks them.

    Args:
        turns: The turns of the episode.
        hindsight: Token ids of a prompt for each turn, from ``_hindsight``; None if unused.
    """
    total = sum(turn.row.reward for turn in turns)
    outputs = []
    for index, turn in enumerate(turns):
        generation = turn.answer.generation
        extra_fields = {**turn.answer.origin, **turn.row.extra_field(), "reward_extra_info": {}}
        if hindsight is not None:
            extra_fields[HINDSIGHT] = list(hindsight[index])
        outputs.append(
            AgentLoopOutput(
                prompt_ids=list(generation.prompt_ids),
                response_ids=list(generation.response_ids),
                # All tokens of a turn's response were sampled by the policy.
                response_mask=[1] * len(generation.response_ids),
                response_logprobs=list(generation.logprobs) or None,
                # verl's score is that of the whole episode, in every row.
                reward_score=total,
                num_turns=2,
                metrics=AgentLoopMetrics(),
                extra_fields=extra_fields,
            )
        )
    return outputs
