"""Changes of a run's metrics.jsonl whose checksum is then computed anew, so that it does not show them."""

import json

from scpo.records.files import file_sum

OF_VALUES = {"a lost value": None, "null": "null", "NaN": "NaN", "infinity": "1e999", "out of range": "7.5"}
"""How one value is changed, and what is written in its place."""
OF_LINES = ("a lost line", "a doubled line", "swapped lines", "no validation")
LOG_CHANGES = (*OF_VALUES, *OF_LINES)


def change_log(folder, how, step, metric=None):
    """Change the line of a step, or one rate in it, and note the new checksum.

    ``metric`` None: the first rate of the line. A line without validation cannot lose it, and keeps what it has.
    """
    lines = [json.loads(line) for line in folder.metrics.read_text().splitlines()]
    place = next(at for at, line in enumerate(lines) if line["step"] == step)
    written = [json.dumps(line) for line in lines]
    if how in OF_VALUES:
        written[place] = _with_value(lines[place], metric or rates(lines[place])[0], OF_VALUES[how])
    elif how == "a lost line":
        del written[place]
    elif how == "a doubled line":
        written.insert(place, written[place])
    elif how == "swapped lines":
        other = place - 1 if place else place + 1
        written[place], written[other] = written[other], written[place]
    else:
        kept = {name: value for name, value in lines[place].items() if not name.startswith("val/")}
        written[place] = json.dumps(kept)
    folder.metrics.write_text("".join(f"{line}\n" for line in written))
    folder.note_sums({folder.metrics.name: file_sum(folder.metrics)})


def rates(line):
    """The rates of validation and training in a line."""
    found = sorted(name for name in line if name.startswith(("train/", "val/")) and name.endswith("success_rate"))
    return found[::-1]


def _with_value(line, metric, text):
    if text is None:
        return json.dumps({name: value for name, value in line.items() if name != metric})
    marked = json.dumps(line | {metric: "here"})
    return marked.replace('"here"', text)
