"""What differs between the runs' configurations, for the comparer of two runs."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from analysis.sources.collect import Collected
from scpo.schema import MACHINE_SECTIONS


def configurations(data: Collected) -> dict[str, Any]:
    """What differs between the runs: ``keys``, the distinct ``values`` of each, and by run which of them it has.

    Of the whole configuration without what says where a run runs, and beside it the code and the processor. None: the
    run's configuration has no such key.
    """
    flat = {run: _flat(data, run) for run in data.runs["id"]}
    keys = sorted({key for one in flat.values() for key in one})
    differing = [key for key in keys if len({one.get(key) for one in flat.values()}) > 1]
    values = [list(dict.fromkeys(one.get(key) for one in flat.values())) for key in differing]
    runs = {
        run: [options.index(one.get(key)) for key, options in zip(differing, values, strict=True)]
        for run, one in flat.items()
    }
    return {"keys": differing, "values": values, "runs": runs}


def _flat(data: Collected, run: str) -> dict[str, str]:
    config = {name: value for name, value in data.config(run).items() if name not in MACHINE_SECTIONS}
    known = data.by_id[run]
    beside = {"(code) commit": known.commit, "(machine) processor": known.processor}
    return dict(_leaves(config)) | {name: str(value) for name, value in beside.items() if value}


def _leaves(value: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, one in value.items():
        if isinstance(one, Mapping) and one:
            yield from _leaves(one, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", one if isinstance(one, str) else json.dumps(one, default=str)
