"""The WebShop environment: panels of goals, and episodes with verl-agent's protocol."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from scpo.envs.base import Demonstration, Panel, StepResult, Task
from scpo.envs.projection import project, project_compact
from scpo.envs.webshop.catalogue.catalogue import Catalogue, load_catalogue
from scpo.envs.webshop.catalogue.generated_catalogue import generated_catalogue
from scpo.envs.webshop.compact import compact
from scpo.envs.webshop.compact_actions import expand
from scpo.envs.webshop.panels import GoalPanels, place
from scpo.envs.webshop.prompts import verl_agent
from scpo.envs.webshop.shop.shop import WebShop
from scpo.envs.webshop.transcript import Transcript
from scpo.errors import CatalogueError
from scpo.schema.env import WebshopConfig
from scpo.schema.model import WarmStart

UNTAGGED_TAIL = 20  # verl-agent's projection of this environment


@dataclass(frozen=True)
class Interface:
    """How text passes between a policy and the shop: the prompt, and the projection of a response."""

    prompt: Callable[[Transcript, WebshopConfig], str]
    project: Callable[[str, Transcript], tuple[str, bool]]


def _project_compact(response: str, transcript: Transcript) -> tuple[str, bool]:
    action, valid = project_compact(response, tail=UNTAGGED_TAIL)
    return (expand(action, transcript.actions["clickables"]) if valid else action), valid


INTERFACES = {
    "verl_agent": Interface(
        lambda transcript, config: verl_agent(transcript, config.history_length, config.max_prompt_characters),
        lambda response, _transcript: project(response, require_think=True, tail=UNTAGGED_TAIL),
    ),
    "compact": Interface(
        lambda transcript, config: compact(transcript, config.history_length),
        _project_compact,
    ),
}


class WebshopEpisode:
    """One rollout of one goal; see ``scpo.envs.base.Episode``. Success is a purchase with the full score.

    ``observation`` is the current page after the instruction, without any score: the anchor state.
    """

    def __init__(self, task: Task, shop: WebShop, config: WebshopConfig) -> None:
        self.task = task
        self.done = False
        self.shop = shop
        self.transcript = Transcript.of(shop)
        self.observation = self.transcript.observation
        self._config = config
        self._interface = INTERFACES[config.prompt]

    def prompt(self) -> str:
        """The text that the policy reads now."""
        return self._interface.prompt(self.transcript, self._config)

    def step(self, response: str) -> StepResult:
        """Project the response and execute it.

        Raises:
            RuntimeError: The episode is over.
        """
        number = len(self.transcript.history)
        if self.done:
            raise RuntimeError(f"episode of {self.task.id} is over after {number} steps; start a new one")
        action, valid = self._interface.project(response, self.transcript)
        _, score, bought = self.shop.step(action)
        self.transcript.record(action, self.shop)
        self.observation = self.transcript.observation
        won = score == 1.0
        self.done = bought or number + 1 >= self._config.horizon
        reward = self._config.reward_scale * (score if self._config.reward == "score" else won)
        return StepResult(action, valid, self.observation, reward, self.done, won, score=score)


class WebshopEnvironment:
    """Catalogue, panels and episodes of one process; see ``scpo.envs.base.Environment``.

    Args:
        config: Which catalogue, goals and protocol.
        cache_dir: Not needed, the shop is made in a moment.
        webshop_data: Folder of the official files; only read if the configuration asks for them.

    Raises:
        CatalogueError: Official files are asked for and not there.
    """

    def __init__(
        self, config: WebshopConfig, *, cache_dir: Path | str | None = None, webshop_data: str | None = None
    ) -> None:
        self.config = config
        self.catalogue = _catalogue(config, webshop_data)
        self.panels = GoalPanels(config, self.catalogue)
        self.families = tuple(sorted({product.category for product in self.catalogue.products}))

    def panel(self, name: str) -> Panel:
        """The panel of that name: ``train``, ``probe`` or a validation panel.

        Raises:
            PanelError: No such panel, or its split has too few goals.
        """
        return self.panels.panel(name)

    def start(self, task: Task, slot: int, config: WebshopConfig | None = None) -> WebshopEpisode:
        """Begin an episode, with another configuration of the protocol if one is given.

        All episodes share the catalogue; what is their own is a few kilobytes.

        Raises:
            CatalogueError: The goal is not the one that the task was made from.
        """
        if (now := self.panels.task(task.id)).sha256 != task.sha256:
            raise CatalogueError(
                f"goal {task.id} changed: it hashes to {now.sha256}, the panel was drawn with {task.sha256}; restore "
                f"the catalogue ({self.catalogue.origin}) or draw the panel again in a new run"
            )
        seed, index = place(task.id)
        shop = WebShop(self.catalogue, seed, self.config.nouns, human=self.config.goals == "human")
        shop.reset(index)
        return WebshopEpisode(task, shop, config or self.config)

    def demonstrations(self, config: WarmStart) -> list[Demonstration]:
        """See ``scpo.envs.webshop.demonstrations``."""
        from scpo.envs.webshop.demonstrations import demonstrations  # plays episodes of this class

        return demonstrations(self, config)

    def vocabulary(self) -> list[str]:
        """See ``scpo.envs.webshop.demonstrations``."""
        from scpo.envs.webshop.demonstrations import vocabulary

        return vocabulary(self)


def _catalogue(config: WebshopConfig, folder: str | None) -> Catalogue:
    if config.catalogue == "generated":
        return generated_catalogue(config.generated.seed, config.generated.products)
    if folder is None:
        raise CatalogueError(
            "env.catalogue=official needs the official files: set machine.webshop_data or WEBSHOP_DATA to their folder "
            "(`python -m scpo.envs.webshop` says where to get them), or use env.catalogue=generated"
        )
    return load_catalogue(folder)
