"""Many conversations at once, each with its keys and values in a slot that lives across turns.

A new observation costs its own tokens only; a slot is used again by reading a fresh prompt into it.
Nothing waits for others: tokens can be given to some slots while others are in the middle of their
answers, and answers come back as they end.
"""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from jaxrl_guided.backbones import sharding, turns
from jaxrl_guided.backbones.stops import StopReason
from jaxrl_guided.backbones.turns import Rules, Text, Weights
from jaxrl_guided.runtime.ranges import INT32, POSITIVE, Range, check, check_choice

# A program is compiled for each of these lengths of new tokens, each number of rows (powers of
# four), each room for tokens (doubled when a conversation needs it), and each part of the room that
# the conversations at hand need, when it is first needed.
_LENGTHS = (16, 32, 128, 512)
_FIRST_SIZE = 256

Overlong = Literal["error", "truncate"]

_TEMPERATURE = Range(lambda x: x == 0 or POSITIVE.holds(x), f"0, or {POSITIVE.text}")
_SEED = Range(lambda x: 0 <= x < 2**32 and x % 1 == 0, "an integer within 0 … 2**32 - 1")


class Completion(NamedTuple):
    """What a slot has answered.

    Attributes:
      tokens: `i32[n]`, as drawn, the stop token included; none if its input left no room.
      log_probs: `f32[n]`, of each under the distribution that it was drawn from.
      reason: why it ends there.
      dropped: how many of the turn's new tokens were left out, the first of them, for want of room.
    """

    tokens: np.ndarray
    log_probs: np.ndarray
    reason: StopReason
    dropped: int


@dataclasses.dataclass(frozen=True)
class Request:
    """Tokens for a slot, and how it answers.

    Attributes:
      tokens: ids to read, at least one (after an answer also none).
      seed: 0 … 2³² − 1; says alone what is drawn, whatever other slots do.
      temperature: 0 is greedy; else a normal float32.
      max_tokens: of the answer; the sampler's own limit if None.
      fresh: a new conversation; what the slot has read before is forgotten.
    """

    tokens: Sequence[int] | np.ndarray
    seed: int = 0
    temperature: float = 1.0
    max_tokens: int | None = None
    fresh: bool = False


class Sampler:
    """Slots on the device, and what the host knows of them.

    Args:
      rules: decoder and limits.
      rows: number of slots.
      overlong: what is done with tokens that do not fit: `error`, or `truncate`, which leaves out
        the first of the new ones and says so in the completion.
      cache_dtype: of keys and values.
      mesh: of `sharding.make_model_mesh`; slots are divided along `fsdp`, their heads along
        `tensor`. Weights are then given stacked, as `sharding.shardings` places them.

    Raises:
      ValueError: `rows` is not positive, does not divide or asks for more memory than there is,
        `max_tokens` is not within 1 … `size` − 1, or `overlong` is neither of its choices.
    """

    def __init__(
        self,
        rules: Rules,
        rows: int,
        overlong: Overlong = "error",
        cache_dtype: jax.typing.DTypeLike = jnp.float32,
        mesh: Mesh | None = None,
    ) -> None:
        if rows < 1 or not 0 < rules.max_tokens < rules.size:
            raise ValueError(
                f"a sampler needs rows >= 1 and 1 <= max_tokens < size, got rows {rows}, "
                f"max_tokens {rules.max_tokens}, size {rules.size}"
            )
        self.rules, self.rows, self.overlong = rules, rows, overlong
        check(self, INT32, "rows")
        check_choice(self, "overlong", get_args(Overlong))
        self._cache_dtype, self._mesh = cache_dtype, mesh
        self.reset()
        places = None if mesh is None else sharding.of_slots(mesh, rules.backbone, self._slots)
        placed = functools.partial(jax.jit, out_shardings=places)
        self._read = placed(turns.read, static_argnums=(0, 1), donate_argnums=3)
        self._advance = placed(turns.advance, static_argnums=(0, 1), donate_argnums=3)
        self._grow = placed(turns.grow, static_argnums=1)

    def reset(self) -> None:
        """Forgets all conversations, and what was submitted or begun: as if it were new."""
        self._slots = self._empty()
        self._length = np.zeros(self.rows, np.int64)  # tokens read
        self._pending: dict[int, int] = {}  # drawn last, not yet read
        self._waiting: dict[int, _Waiting] = {}
        self._running: dict[int, int] = {}  # slot -> dropped tokens
        self._done: dict[int, Completion] = {}  # of what was begun

    @property
    def busy(self) -> bool:
        """Some slot reads or answers."""
        return bool(self._waiting or self._running)

    def submit(self, slot: int, request: Request) -> None:
        """Gives new tokens to a slot that has answered (or never been used).

        Raises:
          ValueError: no such slot, it is not done yet, there is nothing to read, an id is no
            integer or not in the vocabulary, a number is out of range, or, with
            `overlong="error"`, the conversation would leave no room for an answer of `max_tokens`.
        """
        self._waiting[slot] = self._checked(slot, request)

    def run(self, weights: Weights, steps: int = 32) -> dict[int, Completion]:
        """Reads what was submitted, draws up to `steps` more tokens in each slot that answers.

        Returns:
          The answers that ended, by slot.

        Raises:
          ValueError: `steps` is not positive.
        """
        self.begin(weights, steps)
        return self.finish()

    def begin(self, weights: Weights, steps: int = 32) -> None:
        """Starts what `run` does; the device works on while the host does something else."""
        _check_steps(steps)
        self._done |= self._without_room()
        self._read_waiting(weights)
        if self._running:
            longest = int(max(self._length[slot] for slot in self._running))
            reach = self._make_room(longest + steps)
            self._slots = self._advance(self.rules, reach, weights, self._slots, jnp.int32(steps))

    def finish(self) -> dict[int, Completion]:
        """Waits for what was begun; returns the answers that ended, by slot."""
        done, self._done = self._done | self._collect(), {}
        return done

    def answer(
        self, weights: Weights, requests: Mapping[int, Request], steps: int = 32
    ) -> dict[int, Completion]:
        """Submits, and runs until every slot has answered.

        Raises:
          ValueError: as `submit` and `run`; then nothing is submitted.
        """
        _check_steps(steps)
        self._waiting |= {slot: self._checked(slot, given) for slot, given in requests.items()}
        done: dict[int, Completion] = {}
        while self.busy:
            done |= self.run(weights, steps)
        return done

    def _empty(self) -> turns.Slots:
        """Slots that have read nothing."""
        size = min(self.rules.size, _FIRST_SIZE)
        try:
            slots = turns.init_slots(self.rules, self.rows, size, self._cache_dtype)
        except (jax.errors.JaxRuntimeError, ValueError) as error:  # XLA raises either
            raise ValueError(
                f"there is no memory for rows = {self.rows} slots ({error})"
            ) from error
        if self._mesh is None:
            return slots
        places = sharding.of_slots(self._mesh, self.rules.backbone, slots)
        return jax.device_put(slots, places)

    def _checked(self, slot: int, request: Request) -> "_Waiting":
        """What a slot is to read; errors as of `submit`."""
        self._check(slot, request)
        fresh = request.fresh or slot not in self._pending
        before = 0 if fresh else int(self._length[slot])
        tokens = np.asarray(request.tokens, np.int32).reshape(-1)
        if not fresh:
            tokens = np.concatenate([np.array([self._pending[slot]], np.int32), tokens])
        budget = request.max_tokens or self.rules.max_tokens
        # The last token of the answer need not be read.
        excess = before + len(tokens) + budget - 1 - self.rules.size
        if excess > 0 and self.overlong == "error":
            raise ValueError(
                f"slot {slot}: {before + len(tokens)} tokens and an answer of {budget} do not fit "
                f"into size {self.rules.size}; raise size, or let overlong='truncate' cut them"
            )
        first = 0 if fresh else 1  # the last answer is never cut
        dropped = min(max(excess, 0), len(tokens) - first)
        tokens = np.concatenate([tokens[:first], tokens[first + dropped :]])
        return _Waiting(tokens, request, budget, fresh, dropped)

    def _check(self, slot: int, request: Request) -> None:
        if not 0 <= slot < self.rows:
            raise ValueError(f"there is no slot {slot}: the sampler has {self.rows}")
        if slot in self._waiting or slot in self._running:
            raise ValueError(f"slot {slot} has not answered yet")
        ids, vocabulary = np.asarray(request.tokens), self.rules.backbone.vocab_size
        if ids.size and ids.dtype.kind not in "iu":
            raise ValueError(f"slot {slot}: tokens must be integers, got {ids.dtype}")
        if ids.size and (ids.min() < 0 or ids.max() >= vocabulary):
            wrong = int(ids[(ids < 0) | (ids >= vocabulary)].flat[0])
            raise ValueError(f"slot {slot}: token {wrong} is not in 0 … {vocabulary - 1}")
        if not ids.size and (request.fresh or slot not in self._pending):
            raise ValueError(f"slot {slot}: a new conversation needs at least one token")
        limit, wanted = self.rules.max_tokens, request.max_tokens
        if wanted is not None and (not 0 < wanted <= limit or wanted % 1):
            raise ValueError(f"max_tokens must be an integer within 1 … {limit}, got {wanted}")
        check(request, _TEMPERATURE, "temperature")
        check(request, _SEED, "seed")

    def _without_room(self) -> dict[int, Completion]:
        """Answers of slots in which not even one token could be drawn."""
        full = [
            slot
            for slot, waiting in self._waiting.items()
            if (0 if waiting.fresh else self._length[slot]) + len(waiting.tokens) > self.rules.size
        ]
        none = np.zeros(0, np.int32), np.zeros(0, np.float32)
        return {
            slot: Completion(*none, StopReason.FULL, self._waiting.pop(slot).dropped)
            for slot in full
        }

    def _read_waiting(self, weights: Weights) -> None:
        while self._waiting:
            longest = max(len(waiting.tokens) for waiting in self._waiting.values())
            width = _at_least(longest, _LENGTHS)
            # Rows that would be mostly padding wait for a narrower program.
            narrower = max((n for n in _LENGTHS if n < width), default=0)
            chosen = [s for s, waiting in self._waiting.items() if len(waiting.tokens) > narrower]
            parts = {slot: self._waiting[slot].tokens[:width] for slot in chosen}
            ends = {
                s: (0 if self._waiting[s].fresh else self._length[s]) + len(parts[s])
                for s in chosen
            }
            reach = self._make_room(int(max(ends.values())))
            text = self._text(parts, width)
            self._slots = self._read(self.rules, reach, weights, self._slots, text)
            for slot in chosen:
                self._length[slot] = ends[slot]
                waiting = self._waiting.pop(slot)
                if len(waiting.tokens) > width:
                    rest = waiting._replace(tokens=waiting.tokens[width:], fresh=False)
                    self._waiting[slot] = rest
                else:
                    self._running[slot] = waiting.dropped

    def _text(self, parts: Mapping[int, np.ndarray], width: int) -> Text:
        """A program's input: `parts` of some slots, padded to known numbers of rows and tokens."""
        sizes = [n for n in (4**k for k in range(16)) if n < self.rows]
        rows = _at_least(len(parts), (*sizes, self.rows))
        everywhere = rows == self.rows
        index = list(range(rows)) if everywhere else [*parts, *[self.rows] * (rows - len(parts))]
        tokens, count = np.zeros((rows, width), np.int32), np.zeros(rows, np.int32)
        fresh, last = np.zeros(rows, bool), np.zeros(rows, bool)
        seed, temperature = np.zeros(rows, np.uint32), np.ones(rows, np.float32)
        budget = np.ones(rows, np.int32)
        for row, slot in enumerate(index):
            if slot not in parts:
                continue
            part, waiting = parts[slot], self._waiting[slot]
            tokens[row, : len(part)], count[row] = part, len(part)
            fresh[row], last[row] = waiting.fresh, len(part) == len(waiting.tokens)
            seed[row], temperature[row] = waiting.request.seed, waiting.request.temperature
            budget[row] = waiting.budget
        where = None if everywhere else np.array(index, np.int32)
        text = (where, tokens, count, fresh, last, seed, temperature, budget)
        return Text(*jax.tree.map(jnp.asarray, text))

    def _make_room(self, needed: int) -> int:
        """Sees to room for so many tokens; returns the part of it that holds them."""
        reach = min(_FIRST_SIZE, self.rules.size)
        while reach < min(needed, self.rules.size):
            reach = min(2 * reach, self.rules.size)
        if reach > self._slots.cache.size:
            self._slots = self._grow(self._slots, reach)
        return reach

    def _collect(self) -> dict[int, Completion]:
        if not self._running:
            return {}
        turn = self._slots.turn
        reason, count, length = jax.device_get((turn.reason, turn.count, self._slots.cache.length))
        for slot in self._running:
            self._length[slot] = length[slot]
        ended = [slot for slot in self._running if reason[slot] != StopReason.RUNNING]
        if not ended:
            return {}
        tokens, log_probs = jax.device_get((turn.tokens, turn.log_probs))
        done = {}
        for slot in ended:
            n = count[slot]
            self._pending[slot] = int(tokens[slot, n - 1])
            done[slot] = Completion(
                tokens[slot, :n].copy(),
                log_probs[slot, :n].copy(),
                StopReason(reason[slot]),
                self._running.pop(slot),
            )
        return done


class _Waiting(NamedTuple):
    tokens: np.ndarray  # not yet read
    request: Request
    budget: int
    fresh: bool
    dropped: int


def _check_steps(steps: int) -> None:
    if not (steps >= 1 and INT32.holds(steps)):
        raise ValueError(f"steps must be at least 1 and {INT32.text}, not {steps}")


def _at_least(number: int, sizes: Sequence[int]) -> int:
    """The smallest size that holds `number`, or the largest there is."""
    return next((size for size in sizes if size >= number), sizes[-1])
