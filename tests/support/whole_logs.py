"""Logs as whole as a trainer writes them, from the few lines that a test is about."""


def whole(config, lines):
    """The lines, and those between them, with every number that a run of this configuration logs.

    Between two steps that have it, a measure lies on a straight line; a panel of which nothing is said stays at 0.
    """
    given = {line["step"]: dict(line) for line in lines}
    last = max(given)
    every = config["trainer"]["validation"]["every"]
    final = {last} if last == config["trainer"]["steps"] else set()
    due = {*range(0, last + 1, every), *final} if config["method"]["kind"] == "trained" else {0, last}
    local = config["trainer"]["name"] == "local" and config["method"]["kind"] == "trained"
    for step in {*due, *(range(last + 1) if local else ())}:
        given.setdefault(step, {"step": step})
    for metric in sorted({f"val/{panel}/success_rate" for panel in config["env"]["validation_panels"]} | _named(given)):
        steps = due if metric.startswith("val/") else set(given) - {0} if local else set()
        _fill(given, metric, steps)
    return [given[step] for step in sorted(given)]


def _named(given):
    return {name for line in given.values() for name in line if name.startswith(("val/", "train/"))}


def _fill(given, metric, steps):
    known = {step: line[metric] for step, line in given.items() if isinstance(line.get(metric), (int, float))}
    for step in sorted(steps - set(known)):
        before = max((at for at in known if at < step), default=None)
        after = min((at for at in known if at > step), default=None)
        if before is None or after is None:
            nearest = after if before is None else before
            given[step][metric] = 0.0 if nearest is None else known[nearest]
        else:
            share = (step - before) / (after - before)
            given[step][metric] = known[before] + share * (known[after] - known[before])
