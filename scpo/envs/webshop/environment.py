"""The WebShop environment: panels of goals, and episodes with verl-agent's protocol."""

from __future__ import annotations

from pathlib import Path

from scpo.envs.base import Demonstration, Task
from scpo.envs.webshop.catalogue.catalogue import Catalogue, load_catalogue
from scpo.envs.webshop.catalogue.generated_catalogue import generated_catalogue
from scpo.envs.webshop.demonstrations import demonstrations, vocabulary
from scpo.envs.webshop.episode import WebshopEpisode
from scpo.envs.webshop.panels import GoalPanels, place
from scpo.envs.webshop.shop.shop import WebShop
from scpo.errors import CatalogueError
from scpo.schema.env import WebshopConfig
from scpo.schema.model import Imitation


class WebshopEnvironment:
    """Catalogue, panels and episodes of one process; see ``scpo.envs.base.Environment``.

    Args:
        config: Catalogue, goals and protocol.
        cache_dir: Ignored: the shop is built too quickly to need a cache.
        data: Folder of the official files; only read if the configuration asks for them.

    Raises:
        CatalogueError: The official files are configured, but missing.
        PanelError: Two panels have the same name.
    """

    def __init__(
        self, config: WebshopConfig, *, cache_dir: Path | str | None = None, data: str | None = None
    ) -> None:
        self.config = config
        self.catalogue = _catalogue(config, data)
        self.panels = GoalPanels(config, self.catalogue)
        self.panel = self.panels.panel
        self.families = tuple(sorted({product.category for product in self.catalogue.products}))

    def start(self, task: Task, slot: int, config: WebshopConfig | None = None) -> WebshopEpisode:
        """Begin an episode; all episodes share the catalogue.

        Args:
            task: The panel entry of the goal.
            slot: The sibling's index in its group.
            config: Protocol to use instead of the environment's.

        Raises:
            CatalogueError: The goal is not the one that the task was made from.
        """
        # Another catalogue or seed gives other goals under the same ids.
        present = self.panels.task(task.id)
        if present.sha256 != task.sha256:
            raise CatalogueError(
                f"goal {task.id} changed: it hashes to {present.sha256}, the panel was drawn with "
                f"{task.sha256}; restore the catalogue ({self.catalogue.origin}) or draw the panel "
                "again in a new run"
            )
        seed, index = place(task.id)
        shop = WebShop(self.catalogue, seed, self.config.nouns, human=self.config.goals == "human")
        # The goal is an index into the order of its seed, as the original's reset takes it.
        shop.reset(index)
        return WebshopEpisode(task, shop, config or self.config, slot)

    def demonstrations(self, config: Imitation) -> list[Demonstration]:
        """See ``scpo.envs.webshop.demonstrations``."""
        return demonstrations(
            self.config, self.panels, lambda task, shown: self.start(task, 0, shown), config
        )

    def vocabulary(self) -> list[str]:
        """See ``scpo.envs.webshop.demonstrations``."""
        return vocabulary(self.catalogue, self.panels)


def _catalogue(config: WebshopConfig, folder: str | None) -> Catalogue:
    """The configured catalogue.

    Raises:
        CatalogueError: The official files are configured, but missing.
    """
    if config.catalogue == "generated":
        return generated_catalogue(config.generated.seed, config.generated.products)
    if folder is None:
        raise CatalogueError(
            "env.catalogue=official needs the official files: set machine.data.webshop or "
            "WEBSHOP_DATA to their folder (`python -m scpo.envs.webshop` says where to get them), "
            "or use env.catalogue=generated"
        )
    return load_catalogue(folder)
