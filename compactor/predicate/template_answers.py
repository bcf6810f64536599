"""Decides conditions on strings by their templates, as far as that is possible without the variables.

A template stands for many texts. A pattern of LIKE is run over it with each variable taken for all that its
alphabet allows. A value of = and IN has one template without words as variables; to those with words it is
held token by token.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from compactor.predicate.like import Parts, Wildcard, parts_of
from compactor.predicate.tree import Compare, IsIn, Like, Op
from lsm_fragment import native
from lsm_fragment.arrays.alphabets import BITS, DISTINCTIVE
from lsm_fragment.arrays.dividing import split
from lsm_fragment.arrays.sizes import total_bytes
from lsm_fragment.arrays.templated import Layout, templates_of

U8 = npt.NDArray[np.uint8]
U64 = npt.NDArray[np.uint64]

_MAX_STEPS: Final = 4_096
"""The longest pattern that is run over templates; longer ones are left to the text."""
_WORD_STEPS: Final = 64
"""Steps of a pattern in one word of its states."""
_SLOT_BYTES: Final = 100
"""Bytes of templates that take as long as a slot."""
_ROW_MOVES: Final = 128
"""Words of states that may be moved for each row. So many take about as long as its text does."""
_FREE_MOVES: Final = 1 << 18
"""Words of states that are moved however few rows there are."""
_FREE_BYTES: Final = 1 << 22
"""Bytes of values and templates that are held to each other however few rows there are."""
_ALL_BYTES: Final = bytes(range(256))
_CONTINUATIONS: Final = _ALL_BYTES[0x80:0xC0]
"""The bytes of a character but for its first."""
_BEYOND_ASCII: Final = _ALL_BYTES[0xC0:]
"""The first bytes of characters of several bytes."""
_EQUAL_BEYOND_ASCII: Final = "kKsS"
"""Letters that equal the Kelvin sign or the long s where case is ignored."""


class Answer(IntEnum):
    """What a template says of a condition on the texts that it stands for."""

    NEVER = 0
    MAYBE = 1
    ALWAYS = 2


Answers = npt.NDArray[np.uint8]
"""An `Answer` for each template."""


def answers(
    condition: Compare | IsIn | Like, templates: pa.Array, layout: Layout, alphabets: U64, rows: int
) -> Answers:
    """Returns what each template says of a condition.

    layout: of the templates. alphabets: of their slots. rows: how many texts they stand for.
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
    """Returns whether running a pattern over templates cannot take much longer than searching the texts."""
    steps = sum(1 if isinstance(part, Wildcard) else len(part.encode()) for part in parts)
    passed = int(layout.offsets[-1]) + _SLOT_BYTES * len(layout.kinds)
    moves = (steps // _WORD_STEPS + 1) * passed
    return steps <= _MAX_STEPS and moves <= max(_FREE_MOVES, _ROW_MOVES * rows)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Machine:
    """A pattern as `lsm_fragment.native.arrays.patterns` runs it: state s has s steps behind it."""

    steps: U64
    """The states that each byte moves on, as bitmaps. Shape (256, words)."""
    loops: U64
    """The states that each byte leaves as they are. Shape (256, words)."""
    letter_steps: U64
    """`steps` of any byte of each bit of an alphabet. Shape (64, words)."""
    letter_loops: U64
    last: int
    """The state of a text that matches."""
    anything: U64 | None
    """The states that alone take variables; None if variables are taken for all that they may be."""

    def reach(self, layout: Layout, alphabets: U64) -> U8:
        """Returns 1 for each template that leads to the last state, 0 for others."""
        out = np.empty(len(layout.offsets) - 1, dtype=np.uint8)
        native.arrays.patterns.reach(
            *layout, alphabets, DISTINCTIVE,
            self.steps, self.loops, self.letter_steps, self.letter_loops,
            self.last, self.anything, out,
        )  # fmt: skip
        return out


@lru_cache(maxsize=64)
def _machine(parts: Parts, ignores_case: bool, is_sure: bool) -> _Machine:
    """Makes the machine of a pattern.

    is_sure: whether it takes only what matches whatever the variables are, so that only `%` takes those; or
    else all that may match.
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
    """A machine in the making."""

    def __init__(self) -> None:
        self._steps: list[bytes] = []
        """The bytes that each step takes."""
        self._loops: dict[int, bytes] = {}
        """The bytes that leave states as they are."""

    def loop(self, kept: bytes) -> None:
        self._loops[len(self._steps)] = kept

    def step_exactly(self, letter: str) -> None:
        self._steps += (bytes([byte]) for byte in letter.encode())

    def step_character(self, ascii_bytes: bytes = _ALL_BYTES[:0x80]) -> None:
        """Takes a character of the given ASCII ones, or any other one."""
        self._steps.append(ascii_bytes + _BEYOND_ASCII)
        self.loop(_CONTINUATIONS)

    def step_in_any_case(self, letter: str, *, is_sure: bool) -> None:
        """Takes a letter, of those that equal it the other one in ASCII, and all others unless `is_sure`."""
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
        # Only what takes every byte takes a space.
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
    """Unites the moves of the bytes of each bit of an alphabet."""
    out = np.zeros((64, moves.shape[1]), dtype=np.uint64)
    for byte in np.flatnonzero(BITS).tolist():
        out[int(BITS[byte]).bit_length() - 1] |= moves[byte]
    return out
