"""What an episode has shown so far: all that a prompt is made from."""

from __future__ import annotations

from dataclasses import dataclass, field

from scpo.envs.webshop.compact_actions import compact_action
from scpo.envs.webshop.shop.pages import DONE_SCORE, DONE_TITLE, SEPARATOR, Page
from scpo.envs.webshop.shop.shop import Actions, WebShop
from scpo.envs.webshop.sightings import Sightings

ACTION_WORDS = 16  # of an action in the compact history; a policy may write anything


@dataclass
class Transcript:
    """The course of one episode as text.

    Attributes:
        task: The instruction.
        observation: The current page as the policy reads it.
        actions: What can be done now.
        page: Where the shop is; the compact prompt is made from it.
        history: (observation, action) of every step taken.
        compact_history: The same actions in their compact form.
        sightings: The products that were listed or opened, and what was searched for.
    """

    task: str
    observation: str
    actions: Actions
    page: Page
    history: list[tuple[str, str]] = field(default_factory=list)
    compact_history: list[str] = field(default_factory=list)
    sightings: Sightings = field(default_factory=Sightings)

    @classmethod
    def of(cls, shop: WebShop) -> Transcript:
        """The transcript of a shop that was just reset."""
        task = shop.goal.instruction.strip()
        return cls(task, page_text(shop.observation, task), shop.available_actions(), shop.page)

    @property
    def state_text(self) -> str:
        """The page, and what the customer typed and clicked to get it: query, product, chosen options."""
        page = self.page
        chosen = ", ".join(f"{name}: {value}" for name, value in sorted(page.options.items()))
        product = page.product.asin if page.product else ""
        return f"{self.observation} | query: {page.keywords} | product: {product} | chosen: {chosen}"

    def record(self, action: str, shop: WebShop) -> None:
        """Add a step that the shop has just taken."""
        self.history.append((self.observation, action))
        compacted = compact_action(action, self.actions["clickables"])
        self.compact_history.append(" ".join(compacted.split()[:ACTION_WORDS]))
        self.observation = page_text(shop.observation, self.task)
        self.actions, self.page = shop.available_actions(), shop.page
        self.sightings.record(self.page)


def page_text(observation: str, task: str) -> str:
    """The page as verl-agent's prompts show it: quoted pieces after the instruction.

    The done page has no instruction and is taken without its score, which would give the outcome away.
    """
    pieces = observation.split(SEPARATOR)
    if pieces[0] == DONE_TITLE:
        return SEPARATOR.join(pieces[: len(pieces) - 1 - pieces[::-1].index(DONE_SCORE)])
    if task not in pieces:  # an instruction that holds the separator itself
        return observation
    return SEPARATOR.join(f"'{piece}'" for piece in pieces[pieces.index(task) + 1 :])
