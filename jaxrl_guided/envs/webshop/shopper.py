"""A scripted visitor of the shop, who reads what an agent reads."""

import re
from collections.abc import Sequence

from jaxrl_guided.envs.webshop.product import words_of

_MARK = re.compile(r"\[(?:clicked )?button_?\] ?")
_BETWEEN = re.compile(r" \[sep\] | \| |\n")
_CEILING = re.compile(r"price lower than (\d+\.\d\d) dollars")
_OPTION = re.compile(r", \w+: ([^,]+)")
_ASIN = re.compile(r"b\w{9}|p\d+")
_FILLING = frozenset(
    words_of("a am and buy find for get i is it looking me must be please that to want which")
)
_TURNS = 15
_ANOTHER = 3
"""Clicks to go back, on another product and on the purchase, beside those on options."""


class Shopper:
    """Searches by the words of the instruction, and buys the first product that has all of them.

    Title and features of a product are compared with the instruction; a product that lacks a word
    or costs too much is passed over while there are turns to look at another.

    Args:
      words: of the instruction that are searched for, the first ones; 0: all, and the options.
      reads: it compares; else it buys the first product that is cheap enough.
      chooses: the options that are asked for.
    """

    def __init__(self, words: int = 0, reads: bool = True, chooses: bool = True) -> None:
        self._most, self._reads, self._chooses = words, reads, chooses
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A new visit; nothing is left to chance."""
        self._words, self._options = list[str](), list[str]()
        self._ceiling, self._turn = float("inf"), 0
        self._refused, self._product, self._settles = set[str](), "", False
        self._read, self._chosen = "", set[str]()

    def answer(self, observation: str) -> str:
        """The next search or click."""
        text = _MARK.sub("", observation.lower())
        split = [piece.strip() for piece in _BETWEEN.split(text)]
        pieces = [piece for piece in split if piece and not piece.startswith("actions: ")]
        self._turn += 1
        # The instruction stands on every page, in the compact form on the first only.
        told, shown = (
            (pieces[1], pieces[2:]) if pieces[0] == "instruction:" else (pieces[0], pieces)
        )
        return f"<answer>{self._search(told) if self._turn == 1 else self._action(shown)}</answer>"

    def _action(self, pieces: Sequence[str]) -> str:
        if any(piece.startswith("page ") for piece in pieces):
            return self._choose(pieces)
        if "buy now" in pieces:
            return self._look_at(pieces)
        self._read += f" {' '.join(pieces[2:])}"
        return "click[< prev]"

    def _search(self, instruction: str) -> str:
        if ceiling := _CEILING.search(instruction):
            self._ceiling = float(ceiling[1])
        wanted = instruction.partition(", and price lower")[0]
        self._options = [value.strip() for value in _OPTION.findall(wanted)]
        words = dict.fromkeys(words_of(_OPTION.sub("", wanted)))
        self._words = [word for word in words if word not in _FILLING]
        searched = self._words[: self._most] if self._most else [*self._words, *self._options]
        if not self._chooses:
            self._options = []
        return f"search[{' '.join(searched)}]"

    def _choose(self, pieces: Sequence[str]) -> str:
        """The first product that is cheap enough and was not refused."""
        for place, piece in enumerate(pieces):
            if not _ASIN.fullmatch(piece) or piece in self._refused:
                continue
            if float(pieces[place + 2].lstrip("$")) <= self._ceiling:
                self._product, self._read, self._chosen = piece, "", set()
                return f"click[{piece}]"
        if "next >" in pieces:
            return "click[next >]"
        # Nothing fits: the first product of the last page, whatever it is.
        self._settles = True
        first = next((piece for piece in pieces if _ASIN.fullmatch(piece)), None)
        if first is None:
            return "click[back to search]"
        self._product, self._chosen = first, set()
        return f"click[{first}]"

    def _look_at(self, pieces: Sequence[str]) -> str:
        """Reads, and buys or goes back."""
        fits = all(option in pieces for option in self._options)
        if not self._read:
            self._read = " ".join(pieces)
            if fits and self._reads and not self._has_all():
                return "click[features]"
        more = self._turn + len(self._options) + _ANOTHER <= _TURNS and not self._settles
        if more and self._reads and not (fits and self._has_all()):
            self._refused.add(self._product)
            return "click[< prev]"
        for option in self._options:
            if option in pieces and option not in self._chosen:
                self._chosen.add(option)
                return f"click[{option}]"
        return "click[buy now]"

    def _has_all(self) -> bool:
        return set(self._words) <= set(words_of(self._read))
