"""What holds in a game, which actions are possible, and what they change."""

from collections.abc import Collection, Iterator, Mapping, Sequence

from jaxrl_guided.envs.alfworld.pddl import (
    ROOT,
    Action,
    Condition,
    Domain,
    Problem,
    is_atom,
    typed_list,
    variables,
)

Binding = Mapping[str, str]
"""Objects by variable."""

_UNBOUND = 10**6


class State:
    """Facts that hold now.

    A fact that an action has undone is kept under its name with `not_` before it: texts of the game
    ask for those.

    Args:
      domain: rules.
      problem: the start.
    """

    def __init__(self, domain: Domain, problem: Problem) -> None:
        self._parents, self.types = domain.parents, problem.types
        self._facts: dict[str, set[tuple[str, ...]]] = {}
        self._with: dict[tuple[str, int, str], set[tuple[str, ...]]] = {}
        for fact in problem.facts:
            self._add(fact[0], fact[1:])

    def of(self, predicate: str) -> Collection[tuple[str, ...]]:
        """Arguments of all facts of a predicate."""
        return self._facts.get(predicate, ())

    def where(self, predicate: str, place: int, value: str) -> Collection[tuple[str, ...]]:
        """Those of them that have a value at a place."""
        return self._with.get((predicate, place, value), ())

    def is_a(self, name: str, kind: str) -> bool:
        """Whether an object is of a type or one below it."""
        if kind == ROOT:
            return True
        own: str | None = self.types.get(name)
        while own not in (kind, ROOT, None):
            own = self._parents.get(own or "")
        return own == kind

    def ways(self, action: Action) -> Iterator[Binding]:
        """All parameters with which an action can be done now, and changes what it asks for."""
        seen = set()
        for binding in self.satisfy(action.precondition, {}, action.parameters):
            for whole in self._complete(binding, action.parameters):
                key = tuple(whole[name] for name in action.parameters)
                if key not in seen and not self._is_idle(action, whole):
                    seen.add(key)
                    yield whole

    def apply(self, action: Action, binding: Binding) -> None:
        """Does an action; what it undoes and does at once holds after it."""
        effects = [effect for e in action.effects for effect in self._effects(e, binding)]
        for word, arguments in effects:
            if word.startswith("not_"):
                self._remove(word.removeprefix("not_"), arguments)
                self._add(word, arguments)
        for word, arguments in effects:
            if not word.startswith("not_"):
                self._remove(f"not_{word}", arguments)
                self._add(word, arguments)

    def holds(self, condition: Condition) -> bool:
        """Whether a condition without free variables is met."""
        return any(True for _ in self.satisfy(condition, {}, {}))

    def satisfy(
        self, condition: Condition, binding: Binding, kinds: Mapping[str, str]
    ) -> Iterator[Binding]:
        """Extensions of a binding with which a condition is met, some perhaps twice.

        Args:
          condition: with the variables of `binding` and others.
          binding: values of variables.
          kinds: types of variables.
        """
        word = condition[0]
        if word == "and":
            yield from self._all(condition[1:], binding, kinds)
        elif word == "or":
            for part in condition[1:]:
                yield from self.satisfy(part, binding, kinds)
        elif word == "exists":
            own = typed_list(condition[1])
            outside = {name: value for name, value in binding.items() if name not in own}
            for found in self.satisfy(condition[2], outside, {**kinds, **own}):
                yield {**{n: v for n, v in found.items() if n not in own}, **binding}
        elif word in ("not", "="):
            free = {n: kinds[n] for n in variables(condition) if n not in binding}
            for whole in self._complete(binding, free):
                if self._is_met(condition, whole, kinds):
                    yield whole
        else:
            yield from self._match(condition, binding, kinds)

    def _is_idle(self, action: Action, binding: Binding) -> bool:
        """Whether all that an action does is what it asks for, as going to where one is."""
        precondition = action.precondition
        asked = precondition[1:] if precondition[0] == "and" else [precondition]
        if {atom[0] for atom in action.effects if atom[0] != "not"} - {atom[0] for atom in asked}:
            return False
        effects = [effect for e in action.effects for effect in self._effects(e, binding)]
        done = {effect for effect in effects if not effect[0].startswith("not_")}
        undone = {(word.removeprefix("not_"), a) for word, a in effects if word.startswith("not_")}
        met = {
            (atom[0], tuple(binding.get(n, n) for n in atom[1:])) for atom in asked if is_atom(atom)
        }
        return not undone - done and done <= met

    def _is_met(self, condition: Condition, binding: Binding, kinds: Mapping[str, str]) -> bool:
        if condition[0] == "=":
            left, right = (binding.get(name, name) for name in condition[1:])
            return left == right
        return not any(True for _ in self.satisfy(condition[1], binding, kinds))

    def _all(
        self, parts: Sequence[Condition], binding: Binding, kinds: Mapping[str, str]
    ) -> Iterator[Binding]:
        """Meets the part first that has the fewest ways to be met."""
        if not parts:
            yield binding
            return
        first = min(range(len(parts)), key=lambda n: self._most_ways(parts[n], binding))
        others = [part for n, part in enumerate(parts) if n != first]
        for found in self.satisfy(parts[first], binding, kinds):
            yield from self._all(others, found, kinds)

    def _most_ways(self, condition: Condition, binding: Binding) -> int:
        word = condition[0]
        if not is_atom(condition):
            late = word in ("not", "=")
            free = any(name not in binding for name in variables(condition))
            return _UNBOUND * (1 + late) if free else _UNBOUND - 1
        return len(self._candidates(condition, binding))

    def _candidates(self, atom: Condition, binding: Binding) -> Collection[tuple[str, ...]]:
        """Facts that an atom may be, by one of its values."""
        fewest = self.of(atom[0])
        for place, name in enumerate(atom[1:]):
            value = binding.get(name, None if name[0] == "?" else name)
            if value is not None:
                some = self.where(atom[0], place, value)
                fewest = some if len(some) < len(fewest) else fewest
        return fewest

    def _match(
        self, atom: Condition, binding: Binding, kinds: Mapping[str, str]
    ) -> Iterator[Binding]:
        for arguments in [*self._candidates(atom, binding)]:
            found = dict(binding)
            pairs = zip(atom[1:], arguments, strict=True)
            if all(self._agrees(found, name, value, kinds) for name, value in pairs):
                yield found

    def _agrees(
        self, found: dict[str, str], name: str, value: str, kinds: Mapping[str, str]
    ) -> bool:
        """Whether a variable or constant can have a value; a free variable gets it."""
        if name[0] != "?":
            return name == value
        if name in found:
            return found[name] == value
        found[name] = value
        return self.is_a(value, kinds[name])

    def _complete(self, binding: Binding, wanted: Mapping[str, str]) -> Iterator[Binding]:
        """All objects of the right types for variables without a value."""
        free = next((name for name in wanted if name not in binding), None)
        if free is None:
            yield binding
            return
        for name in self.types:
            if self.is_a(name, wanted[free]):
                yield from self._complete({**binding, free: name}, wanted)

    def _effects(
        self, effect: Condition, binding: Binding
    ) -> Iterator[tuple[str, tuple[str, ...]]]:
        if effect[0] == "when":
            if any(True for _ in self.satisfy(effect[1], binding, {})):
                yield from self._effects(effect[2], binding)
        elif effect[0] == "and":
            for part in effect[1:]:
                yield from self._effects(part, binding)
        else:
            negated = effect[0] == "not"
            atom = effect[1] if negated else effect
            arguments = tuple(binding.get(name, name) for name in atom[1:])
            yield ("not_" if negated else "") + atom[0], arguments

    def _add(self, predicate: str, arguments: tuple[str, ...]) -> None:
        self._facts.setdefault(predicate, set()).add(arguments)
        for place, value in enumerate(arguments):
            self._with.setdefault((predicate, place, value), set()).add(arguments)

    def _remove(self, predicate: str, arguments: tuple[str, ...]) -> None:
        self._facts.get(predicate, set()).discard(arguments)
        for place, value in enumerate(arguments):
            self._with.get((predicate, place, value), set()).discard(arguments)
