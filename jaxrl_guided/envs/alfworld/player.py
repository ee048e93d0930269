"""A scripted player of ALFWorld, who reads what an agent reads."""

import re
from collections import Counter
from collections.abc import Sequence

from jaxrl_guided.envs.alfworld.package import read_catalogue

_LOOK = re.compile(r"(?:look at|examine) (?:the |a |an |some )?(\w+) (?:under|with|in) the (\w+)")
_PUT = re.compile(
    r"(?:put|clean|heat|cool|find) (?:two |a |an |some |the )?(?:clean |hot |cool )?"
    r"(\w+)(?: and put (?:it|them))? (?:in|on) (?:the |a )?(\w+)"
)
_CHANGES = {
    "clean": ("clean", "sinkbasin"),
    "hot": ("heat", "microwave"),
    "heat": ("heat", "microwave"),
    "cool": ("cool", "fridge"),
}
"""What is done, and where, for a word of the goal."""

_FULL_NAME = re.compile(r"\b([a-z]+ \d+)\b")
_CLOSED_TURNS = 2


def _kind(name: str) -> str:
    return name.rstrip("0123456789").strip()


class AlfworldPlayer:
    """Looks where a thing is likeliest to be, takes it, changes it if asked to, and places it.

    It knows what anybody does: what receptacles can contain.

    Args:
      order: kinds of receptacles to look at first, then at all others as they are listed, whatever
        is looked for; empty: where it is likeliest.
    """

    def __init__(self, order: Sequence[str] = ()) -> None:
        self._order = order
        catalogue = read_catalogue()
        self._holds = {
            place.lower(): {thing.lower() for thing in things}
            for place, things in catalogue.holds.items()
        }
        self._doors = {name.lower() for name in catalogue.openable}
        self.reset(0)

    def reset(self, seed: int) -> None:
        """A new game; nothing is left to chance."""
        self._places = list[str]()
        self._contents, self._closed = dict[str, list[str]](), set[str]()
        self._held, self._target, self._at, self._said = "", "", "", ""
        self._changed, self._done = False, set[str]()

    def answer(self, observation: str) -> str:
        """The next action."""
        text = observation.partition("\nActions:")[0]
        if not self._places:
            self._begin(text)
        elif not text.startswith("Note:"):
            self._note(text)
        self._said = self._action()
        return f"<answer>{self._command(self._said)}</answer>"

    def _begin(self, text: str) -> None:
        self._compact = text.startswith("Goal: ")
        if self._compact:
            goal, _, names = text.removeprefix("Goal: ").partition("\n")
            self._places = names.split()
        else:
            names, _, goal = text.partition("Your task is to: ")
            self._places = _FULL_NAME.findall(names.partition("you see")[2])
        goal = goal.strip().rstrip(".").lower()
        self._lamp, self._place = "", ""
        if look := _LOOK.fullmatch(goal):
            self._thing, self._lamp = look[1], look[2]
        elif put := _PUT.fullmatch(goal):
            self._thing, self._place = put[1], put[2]
        else:  # in words of one's own
            self._thing = goal.split()[-1]
        words = goal.split()
        self._change = next((how for word, how in _CHANGES.items() if word in words), None)

    def _note(self, text: str) -> None:
        """What the last action has led to."""
        verb, _, name = self._said.partition(" ")
        if verb in ("go", "open"):
            self._at = name
            if text.rstrip(".").endswith("closed"):
                self._closed.add(name)
            else:
                self._closed.discard(name)
                shown = text.rpartition(":" if self._compact else "you see")[2]
                names = shown.split() if self._compact else _FULL_NAME.findall(shown)
                self._contents[name] = [found for found in names if found != "nothing"]
        elif verb == "take":
            self._held = name
            self._contents[self._at].remove(name)
        elif verb == "put":
            self._held, self._changed = "", False
            self._contents.setdefault(self._at, []).append(name)
            self._done.add(name)
            self._target = self._at
        elif verb in ("clean", "heat", "cool"):
            self._changed = True

    def _action(self) -> str:
        """The next action in few words."""
        if not self._held:
            return self._find(self._thing)
        if self._lamp:
            return self._find(self._lamp)
        if self._change and not self._changed:
            verb, where = self._change
            place = next((name for name in self._places if _kind(name) == where), where)
            return f"{verb} {self._held}" if self._at == place else f"go {place}"
        place = self._target or next((n for n in self._places if _kind(n) == self._place), "")
        if self._at != place:
            return f"go {place}"
        return f"open {place}" if place in self._closed else f"put {self._held}"

    def _find(self, thing: str) -> str:
        """Takes or uses a thing where it was seen, or looks for it."""
        for place, contents in self._contents.items():
            for name in contents:
                if _kind(name) == thing and name not in self._done:
                    if self._at != place:
                        return f"go {place}"
                    return f"use {name}" if thing == self._lamp else f"take {name}"
        if self._at in self._closed and self._at not in self._contents:
            return f"open {self._at}"
        unknown = [name for name in self._places if name not in self._contents]
        if not unknown:
            return "look"
        return f"go {self._first(unknown) if self._order else self._likeliest(thing, unknown)}"

    def _first(self, places: Sequence[str]) -> str:
        """The place whose turn it is."""
        order = {kind: place for place, kind in enumerate(self._order)}
        return min(places, key=lambda name: order.get(_kind(name), len(order)))

    def _likeliest(self, thing: str, places: Sequence[str]) -> str:
        """A place that is worth its turns: each kind is as likely, and a door takes a turn."""
        alike = Counter(map(_kind, self._places))

        def worth(place: str) -> float:
            kind = _kind(place)
            holds = thing == self._lamp or thing in self._holds.get(kind, ())
            likely = holds and not (kind == self._place and not self._change)
            turns = _CLOSED_TURNS if kind in self._doors else 1
            return likely / alike[kind] / turns

        return max(places, key=worth)

    def _command(self, action: str) -> str:
        """An action in the words of the game."""
        verb, _, name = action.partition(" ")
        if self._compact:
            return action
        full = {
            "go": f"go to {name}",
            "take": f"take {name} from {self._at}",
            "put": f"move {name} to {self._at}",
        }
        if verb in ("clean", "heat", "cool"):
            return f"{action} with {self._at}"
        return full.get(verb, action)
