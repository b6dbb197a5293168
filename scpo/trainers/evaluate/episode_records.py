"""Records of evaluated episodes.

Each episode has a line in ``episodes/<panel>.jsonl``, so that a resumed run does not play it again,
and a transcript in ``transcripts/<panel>/<episode>.jsonl``. At the end, a validation record is
written as in other runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np

from scpo.diagnostics.validation_episodes import (
    Ended,
    Played,
    Turn,
    ended_metrics,
    transcript_indices,
)
from scpo.errors import RecordError
from scpo.records import JsonLines, RunFolder
from scpo.records.files import write_bytes
from scpo.records.logs import to_line
from scpo.rollout import Slot


@dataclass(frozen=True)
class EpisodeRecord(Ended):
    """Finished episode; ``length``, ``invalid``, ``score`` and ``won`` are of its last attempt.

    Tokens and ``cost_usd`` count all requests, including those before an environment failure, which
    the API has billed. ``restarts`` is missing in records written before it was counted.

    Attributes:
        attempts: Number of attempts of a reflecting agent; 1 for other agents.
        prompt_tokens: Sum over all requests.
        response_tokens: Sum over all requests.
        cost_usd: Cost at the prices of the model's configuration; 0 for a local model.
    """

    attempts: int
    prompt_tokens: int
    response_tokens: int
    cost_usd: float


class EpisodeLog:
    """The finished episodes of one panel, by number."""

    def __init__(self, folder: RunFolder, panel: str) -> None:
        self._run = folder.run_id
        self._lines = JsonLines(folder.path / "episodes" / f"{panel}.jsonl")
        self._transcripts = folder.path / "transcripts" / panel

    def read(self, slots: Sequence[Slot]) -> dict[int, EpisodeRecord]:
        """Read the finished episodes, by number.

        Args:
            slots: All episodes of the panel; an episode's number is its index in this sequence.

        Raises:
            RecordError: The log is of another run, or of other tasks than ``slots``.
        """
        records = {}
        for line in self._lines.records():
            number = line.pop("step")
            # Lines that were written before the id was recorded lack it.
            run = line.pop("run", self._run)
            if run != self._run:
                raise RecordError(
                    f"{self._lines.path} holds an episode of the run {run}; delete the file to "
                    "play the panel again"
                )
            records[number] = _checked(line, slots, self._lines)
        return records

    def add(
        self, number: int, record: EpisodeRecord, transcript: Sequence[Mapping[str, Any]]
    ) -> None:
        """Record an episode; the transcript first, so that each line of the log has one."""
        write_bytes(self._transcripts / f"{number:05d}.jsonl", b"".join(map(to_line, transcript)))
        self._lines.append({"step": number, "run": self._run, **asdict(record)})

    def played(self, records: Mapping[int, EpisodeRecord]) -> list[Played]:
        """Episodes in the order of their numbers, as a validation records them.

        Those whose transcript the validation stores have the steps of their last attempt.
        """
        numbers = sorted(records)
        chosen = transcript_indices([records[number] for number in numbers])
        shown = {numbers[index] for index in chosen}
        return [self._played(number, records[number], shown=number in shown) for number in numbers]

    def _played(self, number: int, record: EpisodeRecord, *, shown: bool) -> Played:
        """An episode as a validation records it; with the steps of its transcript if ``shown``."""
        episode = Played(**{field.name: getattr(record, field.name) for field in fields(Ended)})
        if not shown:
            return episode
        transcript = JsonLines(self._transcripts / f"{number:05d}.jsonl").records()
        # The transcript also has reflections and earlier attempts.
        acts = []
        for line in transcript:
            if line["kind"] == "act" and line["attempt"] == record.attempts:
                acts.append(line)
        # After an environment failure the attempt started again; keep the steps since then.
        acts = acts[len(acts) - record.length :]
        turns = [Turn(line["action"], line["observation"], line["valid"]) for line in acts]
        return replace(episode, start=acts[0]["prompt"], turns=turns)

    def close(self) -> None:
        """Close the file."""
        self._lines.close()


def _checked(line: dict[str, Any], slots: Sequence[Slot], log: JsonLines) -> EpisodeRecord:
    """Convert a line to a record; check its fields, and that its episode is in the panel."""
    try:
        record = EpisodeRecord(**line)
    except TypeError as error:
        raise RecordError(
            f"{log.path} is of another version ({error}); delete it to play its episodes again"
        ) from None
    # Numbers are indices in a panel, so those of another panel would name other episodes.
    if not any((slot.task.id, slot.sibling) == (record.task, record.repeat) for slot in slots):
        raise RecordError(
            f"{log.path} holds an episode of task {record.task}, repeat {record.repeat}, which is "
            "not in the panel; delete the file to play the panel again"
        )
    return record


def panel_metrics(records: Sequence[EpisodeRecord], *, reflecting: bool) -> dict[str, float]:
    """Compute the metrics of a validation from records.

    If the agent reflects, also the mean number of attempts and the success rate of the first one.
    """
    metrics = ended_metrics(records, by_family=True)
    if reflecting:
        metrics["attempts"] = float(np.mean([record.attempts for record in records]))
        won_at_once = [record.won and record.attempts == 1 for record in records]
        metrics["first_success_rate"] = float(np.mean(won_at_once))
    return metrics


def usage_metrics(records: Sequence[EpisodeRecord], *, billed: bool) -> dict[str, float]:
    """Tokens of all episodes, and their cost if they are ``billed``."""
    usage = {
        "usage/prompt_tokens": float(sum(record.prompt_tokens for record in records)),
        "usage/response_tokens": float(sum(record.response_tokens for record in records)),
    }
    if billed:
        usage["usage/cost_usd"] = sum(record.cost_usd for record in records)
    return usage
