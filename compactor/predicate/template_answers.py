"""Evaluates conditions on templates instead of strings, as far as possible without the variables.

A template represents many strings. LIKE runs its pattern over the template, with each variable matching
whatever its alphabet allows. For = and IN, a value has exactly one template without word variables; templates
with word variables are compared with it token by token.
"""

from __future__ import annotations

from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from compactor.predicate.like import Parts, Wildcard, parts_of
from compactor.predicate.tree import Compare, IsIn, Like, Op
from lsm_fragment import compute as pc
from lsm_fragment import native
from lsm_fragment.arrays.alphabets import BITS, DISTINCTIVE
from lsm_fragment.arrays.dividing import split
from lsm_fragment.arrays.sizes import total_bytes
from lsm_fragment.arrays.templated import Layout, templates_of

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

_MAX_STEPS: Final = 4_096
"""Do not run longer patterns over templates; search the strings instead."""
_WORD_STEPS: Final = 64
"""Pattern steps per 64-bit word of the state bitmap."""
_SLOT_BYTES: Final = 100
"""Cost of a slot, in bytes of template text."""
_ROW_MOVES: Final = 128
"""Cost limit per row, in moved state words: about the cost of searching one string."""
_FREE_MOVES: Final = 1 << 18
"""Always accept this cost, in moved state words, even for few rows."""
_FREE_BYTES: Final = 1 << 22
"""Compare values with templates of word variables up to this product of bytes."""
_ALL_BYTES: Final = bytes(range(256))
_CONTINUATIONS: Final = _ALL_BYTES[0x80:0xC0]
"""UTF-8 continuation bytes."""
_BEYOND_ASCII: Final = _ALL_BYTES[0xC0:]
"""First bytes of multi-byte characters."""
_EQUAL_BEYOND_ASCII: Final = "kKsS"
"""ASCII letters that equal the Kelvin sign or the long s if case is ignored."""


class Answer(IntEnum):
    """Whether a condition holds for the strings that a template represents."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


Answers = npt.NDArray[np.uint8]
"""One `Answer` per template."""


def answers(
    condition: Compare | IsIn | Like, templates: pa.Array, layout: Layout, alphabets: U64, rows: int
) -> Answers:
    """Evaluates a condition on each template.

    layout: of the templates. alphabets: of their slots. rows: number of strings they represent.
    """
    match condition:
        case Like(_, pattern, ignores_case):
            found = _like(pattern, layout, alphabets, rows, ignores_case=ignores_case)
        case IsIn(_, values):
            found = _among(values, templates, layout)
        case Compare(_, Op.EQ, value):
            found = _among(pa.array([value], value.type), templates, layout)
        case Compare(_, Op.NE, value):
            found = Answer.ALWAYS - _among(pa.array([value], value.type), templates, layout)
        case _:
            found = np.full(len(templates), Answer.MAYBE, dtype=np.uint8)
    return found


def _among(values: pa.Array, templates: pa.Array, layout: Layout) -> Answers:
    divided = split(values, len(values))
    if divided is None:
        answer = Answer.MAYBE if len(values) else Answer.NEVER
        return np.full(len(templates), answer, dtype=np.uint8)
    is_there = pc.is_in(templates, value_set=templates_of(divided))
    has_slots = np.diff(layout.firsts) > 0
    found: Answers = np.where(has_slots, Answer.MAYBE, Answer.ALWAYS).astype(np.uint8)
    found[~is_there.to_numpy(zero_copy_only=False)] = Answer.NEVER
    has_words = layout.have_words()
    if has_words.any():
        found[has_words] = Answer.MAYBE
        if (
            len(values) * total_bytes(templates) + len(templates) * total_bytes(values)
            <= _FREE_BYTES
        ):
            found[has_words & ~layout.may_be(values)] = Answer.NEVER
    return found


def _like(
    pattern: str, layout: Layout, alphabets: U64, rows: int, *, ignores_case: bool
) -> Answers:
    out = np.full(len(layout.offsets) - 1, Answer.MAYBE, dtype=np.uint8)
    parts = parts_of(pattern)
    if not _pays(parts, layout, rows):
        return out
    out[_machine(parts, ignores_case, False).reach(layout, alphabets) == 0] = Answer.NEVER
    if out.any():
        out[_machine(parts, ignores_case, True).reach(layout, alphabets) == 1] = Answer.ALWAYS
    return out


def _pays(parts: Parts, layout: Layout, rows: int) -> bool:
    """Returns whether running the pattern over templates is no slower than searching the strings."""
    steps = sum(1 if isinstance(part, Wildcard) else len(part.encode()) for part in parts)
    passed = int(layout.offsets[-1]) + _SLOT_BYTES * len(layout.kinds)
    moves = (steps // _WORD_STEPS + 1) * passed
    return steps <= _MAX_STEPS and moves <= max(_FREE_MOVES, _ROW_MOVES * rows)


class _Machine(Struct, frozen=True, kw_only=True):
    """A pattern as an automaton for `lsm_fragment.native.arrays.patterns`: state s has matched s steps."""

    steps: U64
    """States that each byte advances, as bitmaps. Shape (256, words)."""
    loops: U64
    """States that each byte keeps. Shape (256, words)."""
    letter_steps: U64
    """Union of `steps` over the bytes of each alphabet bit. Shape (64, words)."""
    letter_loops: U64
    last: int
    """The accepting state."""
    anything: U64 | None
    """The only states that accept variables; None if a variable may be anything its alphabet allows."""

    def reach(self, layout: Layout, alphabets: U64) -> U8:
        """Returns 1 for each template that reaches the accepting state, 0 for others."""
        out = np.empty(len(layout.offsets) - 1, dtype=np.uint8)
        native.arrays.patterns.reach(
            *layout, alphabets, DISTINCTIVE,
            self.steps, self.loops, self.letter_steps, self.letter_loops,
            self.last, self.anything, out,
        )  # fmt: skip
        return out


@lru_cache(maxsize=64)
def _machine(parts: Parts, ignores_case: bool, is_sure: bool) -> _Machine:
    """Compiles a pattern.

    is_sure: accepts only templates that match for all values of their variables, so that only `%` accepts a
    variable; otherwise accepts all that may match.
    """
    maker = _MachineMaker()
    for part in parts:
        if part is Wildcard.TEXT:
            maker.loop(_ALL_BYTES)
        elif part is Wildcard.CHARACTER:
            maker.step_character()
        else:
            for letter in part:
                if ignores_case:
                    maker.step_in_any_case(letter, is_sure=is_sure)
                else:
                    maker.step_exactly(letter)
    return maker.made(is_sure=is_sure)


class _MachineMaker:
    """Collects the steps of a machine."""

    def __init__(self) -> None:
        self._steps: list[bytes] = []
        """Bytes that each step accepts."""
        self._loops: dict[int, bytes] = {}
        """Bytes that keep a state."""

    def loop(self, kept: bytes) -> None:
        self._loops[len(self._steps)] = kept

    def step_exactly(self, letter: str) -> None:
        self._steps += (bytes([byte]) for byte in letter.encode())

    def step_character(self, ascii_bytes: bytes = _ALL_BYTES[:0x80]) -> None:
        """Accepts the given ASCII characters and all other characters."""
        self._steps.append(ascii_bytes + _BEYOND_ASCII)
        self.loop(_CONTINUATIONS)

    def step_in_any_case(self, letter: str, *, is_sure: bool) -> None:
        """Accepts a letter in either case. Where folding leaves ASCII: exactly it if `is_sure`, else any."""
        cases = (letter.lower() + letter.upper()).encode()
        if letter.isascii() and (is_sure or letter not in _EQUAL_BEYOND_ASCII):
            self._steps.append(cases)
        elif is_sure:
            self.step_exactly(letter)
        elif letter.isascii():
            self.step_character(cases)
        else:
            self.step_character()

    def made(self, *, is_sure: bool) -> _Machine:
        words = len(self._steps) // _WORD_STEPS + 1
        steps, loops = np.zeros((2, 256, words), dtype=np.uint64)
        for moves, places in ((steps, enumerate(self._steps)), (loops, self._loops.items())):
            for state, taken in places:
                moves[list(taken), state // _WORD_STEPS] |= np.uint64(1 << state % _WORD_STEPS)
        # Only a `%` loop accepts a space, so this finds the states that accept every byte.
        anything = loops[ord(" ")] if is_sure else None
        last = len(self._steps)
        return _Machine(
            steps=steps,
            loops=loops,
            letter_steps=_by_bit(steps),
            letter_loops=_by_bit(loops),
            last=last,
            anything=anything,
        )


def _by_bit(moves: U64) -> U64:
    """Combines the moves of all bytes of each alphabet bit."""
    out = np.zeros((64, moves.shape[1]), dtype=np.uint64)
    for byte in np.flatnonzero(BITS).tolist():
        out[int(BITS[byte]).bit_length() - 1] |= moves[byte]
    return out
