"""WebShop in text (Yao et al. 2022): find and buy what an instruction asks for."""

import dataclasses
import re
from collections.abc import Sequence

from jaxrl_guided.envs.text.answers import last_answer, shortened
from jaxrl_guided.envs.text.task import TASK, Opening, Reply
from jaxrl_guided.envs.webshop import pages
from jaxrl_guided.envs.webshop.goals import draw_goal
from jaxrl_guided.envs.webshop.originals import read_originals
from jaxrl_guided.runtime.extras import check_installed

MODES = ("text", "rich")
_ACTION = re.compile(r"\b(search|click)\[([^\[\]]+)\]", re.IGNORECASE)
_SYSTEM = (
    "You shop on a website for somebody else. In each turn you see a page and what you can do "
    "there. Think as briefly as you can, then give one action as <answer>ACTION</answer>: "
    "search[KEYWORDS] on the page that has a search bar, click[VALUE] for anything that can be "
    "clicked. Choose the options that are asked for before you click[Buy Now], which ends the task."
)
_COMPACT = "Shop. Answers: <answer>search[words]|click[value]</answer>"


class WebShopText:
    """One purchase after the other.

    The return is the score of `reward.score`, from 0 to 1; only 1 is a success.

    Args:
      data: a directory with the original's files (see `read_originals`); empty for a catalogue of
        our own.
      products: how many that one has.
      catalogue: its seed.
      mode: `text`, pieces between ` [SEP] `; or `rich`, a line each, buttons marked.
      compact: few words, for models that learn them from scratch: the instruction only at the
        start, no list of what can be clicked, small letters, numbers in place of codes.
      page_size: products on a page of results.
      max_turns: answers in an episode.

    Raises:
      ValueError: a number out of range, unknown mode, the extra is not installed, or a file of
        `data` cannot be read.
    """

    def __init__(
        self,
        data: str = "",
        products: int = 1000,
        catalogue: int = 0,
        mode: str = "text",
        compact: bool = False,
        page_size: int = 10,
        max_turns: int = 15,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}, not '{mode}'")
        counts = {"products": products, "page_size": page_size, "max_turns": max_turns}
        for name, value in counts.items():
            if value < 1:
                raise ValueError(f"{name} must be at least 1, not {value}")
        check_installed("task: 'webshop'", ("bm25s", "thefuzz"), "webshop")
        from jaxrl_guided.envs.webshop.shop import Shop, synthetic_shop

        self.max_turns, self._mode, self._compact, self._size = max_turns, mode, compact, page_size
        if data:
            sold, self._goals = read_originals(data)
            self._shop, self.instances = Shop(sold), len(self._goals)
        else:
            self._shop, self._goals = synthetic_shop(products, catalogue), []
            self.instances = 2**31
        codes = [product.asin.lower() for product in self._shop.products] if compact else []
        self._numbers = {code: f"p{number}" for number, code in enumerate(codes)}
        self._codes = {number: code for code, number in self._numbers.items()}

    def reset(self, seed: int) -> Opening:
        """Opens the search page with the instruction of that seed."""
        self._goal = self._goals[seed] if self._goals else draw_goal(self._shop.products, seed)
        self._page = pages.Page()
        self._show()
        shown = self._render()
        if self._compact:
            shown = f"{self._goal.instruction.lower()}\n{shown}"
        system = _COMPACT if self._compact else _SYSTEM
        return Opening(system, shown, f"WebShop: {self._goal.instruction}")

    def step(self, answer: str) -> Reply:
        """A search or a click."""
        from jaxrl_guided.envs.webshop.reward import score

        page, note = self._follow(answer)
        if page is None:
            return Reply(f"{note}\n{self._render()}", acted=False)
        self._page = page
        self._show()
        if page.kind != "done":
            return Reply(self._render())
        assert page.product is not None
        reward = score(self._goal, page.product, page.chosen)
        return Reply("", {TASK: reward}, terminated=True, success=reward == 1)

    def close(self) -> None:
        """Nothing to free."""

    def _show(self) -> None:
        self._shown = pages.pieces(self._page, self._size)
        self._leads = pages.clickable(self._shown)

    def _follow(self, answer: str) -> tuple[pages.Page | None, str]:
        """The page that an answer leads to, or why there is none."""
        found = _ACTION.findall(last_answer(answer) or answer)
        if not found:
            return None, "Note: no action; answer search[KEYWORDS] or click[VALUE]."
        verb, value = found[-1][0].lower(), found[-1][1].strip().lower()
        if verb == "click":
            page = self._leads.get(value) or self._leads.get(self._codes.get(value, ""))
            return page, f"Note: '{shortened(value)}' cannot be clicked here."
        if self._page.kind != "search":
            return None, "Note: there is no search bar here; click[Back to Search] first."
        return pages.results(self._page, self._shop.search(value, pages.FOUND)), ""

    def _render(self) -> str:
        told = [] if self._compact else ["Instruction:", self._goal.instruction]
        pieces = [*map(self._shortened, self._shown)] if self._compact else self._shown
        if self._mode == "text":
            between = " | " if self._compact else " [SEP] "
            shown = between.join([*told, *(piece.text for piece in pieces)])
        else:
            shown = "\n".join([*told, *map(_button, pieces)])
        return shown if self._compact else f"{shown}\n{_offer(self._page, list(self._leads))}"

    def _shortened(self, piece: pages.Piece) -> pages.Piece:
        text = piece.text.lower()
        return dataclasses.replace(piece, text=self._numbers.get(text, text))


def _button(piece: pages.Piece) -> str:
    if piece.leads is None:
        return piece.text
    kind = "clicked button" if piece.marked else "button"
    return f"[{kind}] {piece.text} [{kind}_]"


def _offer(page: pages.Page, clickable: Sequence[str]) -> str:
    """What can be done, in a line."""
    if page.kind == "search":
        return "Actions: search[KEYWORDS]"
    return "Actions: " + ", ".join(f"click[{value}]" for value in clickable)
