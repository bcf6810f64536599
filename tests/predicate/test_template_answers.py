"""What templates say of conditions, against the texts that they stand for."""

from __future__ import annotations

from itertools import product

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from compactor.predicate.template_answers import Answer, answers
from compactor.predicate.tree import Compare, IsIn, Like, Not, Op, matching
from lsm_fragment import native
from lsm_fragment.arrays.alphabets import BITS, DIGITS
from lsm_fragment.arrays.dividing import NO_VARYING_WORDS, VaryingWords, split, varying_words_in
from lsm_fragment.arrays.templated import codes_of, layout_of, templates_of, texts_of
from tests.format.test_templates import words_for

PIECES = st.one_of(
    st.sampled_from(
        ["a", "b", "K", "k", "1", "22", " ", "-", "%", "_", "ab1", "a1b2", "ä", "日本"]
    ),
    st.sampled_from(
        ["\u017f", "\u212a", "\x11", "\x12", "\n", "\x00", "error", "error7", "9" * 20]
    ),
)
TEXTS = st.lists(PIECES, max_size=6).map("".join)
WILD = st.lists(
    st.one_of(PIECES, st.sampled_from(["%", "%", "_", "\\%", "\\\\", "\\_"])), max_size=6
)
PATTERNS = WILD.map("".join).filter(lambda text: not _ends_in_escape(text))
CONDITIONS = st.one_of(
    st.builds(Like, st.just("m"), PATTERNS, st.booleans()),
    st.builds(Compare, st.just("m"), st.sampled_from([Op.EQ, Op.NE, Op.LT]), TEXTS.map(pa.scalar)),
    st.builds(
        IsIn, st.just("m"), st.lists(TEXTS, max_size=4).map(lambda t: pa.array(t, pa.string()))
    ),
)
ANYTHING = np.uint64(2**64 - 1)


def _ends_in_escape(text: str) -> bool:
    return (len(text) - len(text.rstrip("\\"))) % 2 == 1


def alphabets_of(array: pa.Array) -> npt.NDArray[np.uint64]:
    """Returns the bytes of the variables of each slot, by plain Python."""
    layout = layout_of(templates_of(array))
    found = np.zeros(len(layout.kinds), dtype=np.uint64)
    codes = codes_of(array)
    for row, variables in enumerate(texts_of(array).to_pylist()):
        at = 0
        for slot in range(layout.firsts[codes[row]], layout.firsts[codes[row] + 1]):
            if layout.kinds[slot] == 0x11:
                continue
            value, shift = 0, 0
            while True:
                value |= (variables[at] & 0x7F) << shift
                shift, at = shift + 7, at + 1
                if variables[at - 1] < 0x80:
                    break
            found[slot] |= np.bitwise_or.reduce(BITS[list(variables[at : at + value])])
            at += value
    found[layout.kinds == 0x11] = DIGITS
    return found


def said(
    condition: Compare | IsIn | Like,
    texts: list[str],
    *,
    words: VaryingWords = NO_VARYING_WORDS,
    knows: bool = True,
) -> list[Answer]:
    """Returns what the template of each text says.

    words: those that are variables. knows: whether the alphabets are those of the texts.
    """
    array = split(pa.array(texts, pa.string()), len(texts), words)
    layout, alphabets = layout_of(templates_of(array)), alphabets_of(array)
    if not knows:
        alphabets[layout.kinds != 0x11] = ANYTHING
    found = answers(condition, templates_of(array), layout, alphabets, len(texts))
    return [Answer(found[code]) for code in codes_of(array)]


@settings(max_examples=1500, deadline=None)
@given(st.lists(TEXTS, min_size=1, max_size=12), CONDITIONS, st.booleans(), st.data())
def test_no_answer_contradicts_the_texts(
    texts: list[str], condition: Compare | IsIn | Like, knows: bool, data: st.DataObject
) -> None:
    holds = matching(condition, {"m": pa.array(texts, pa.string())}, len(texts)).to_pylist()
    found = said(condition, texts, words=words_for(texts, data), knows=knows)
    for text, answer, is_true in zip(texts, found, holds, strict=True):
        assert answer is Answer.MAYBE or (answer is Answer.ALWAYS) == is_true, text


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(["a", "1", "12", " ", "a1"]), max_size=4).map("".join), PATTERNS)
def test_answers_hold_for_all_texts_of_a_template(text: str, pattern: str) -> None:
    [answer] = said(Like("m", pattern), [text])
    array = split(pa.array([text]), 1)
    template, alphabets = templates_of(array)[0].as_py(), alphabets_of(array)
    choices = [
        ["1", "2", "10", "12", "22", "122", "2222"]
        if alphabet == DIGITS
        else ["a1", "1a", "11a", "a11", "a1a", "aa1", "aa11", "a1a1", "1aa", "1a1"]
        for alphabet in alphabets
    ]
    parts = template.replace("\x12", "\x11").split("\x11")
    texts = [
        parts[0] + "".join(a + b for a, b in zip(chosen, parts[1:], strict=True))
        for chosen in product(*choices)
    ]
    holds = matching(Like("m", pattern), {"m": pa.array(texts)}, len(texts)).to_pylist()
    assert answer is Answer.MAYBE or set(holds) == {answer is Answer.ALWAYS}


@pytest.mark.parametrize(
    ("pattern", "text", "answer"),
    [
        ("%error%", "an error at 12", Answer.ALWAYS),
        ("%error%", "12 of 13", Answer.NEVER),
        ("%error%", "an Error", Answer.NEVER),
        ("%error%", "id b7e2", Answer.NEVER),  # its alphabet has no o
        ("%be%", "id b7e2", Answer.MAYBE),
        ("%be%", "id 72", Answer.NEVER),
        ("%id b%", "id b7e2", Answer.MAYBE),
        ("%ib%", "id b7e2", Answer.NEVER),
        ("id %", "id b7e2", Answer.ALWAYS),
        ("id_%", "id b7e2", Answer.ALWAYS),
        ("id__%", "id b7e2", Answer.MAYBE),
        ("% of _", "12 of 13", Answer.MAYBE),
        ("% of ____________________", "12 of 13", Answer.NEVER),  # numbers have 19 digits at most
        ("%", "12 of 13", Answer.ALWAYS),
        ("", "", Answer.ALWAYS),
        ("", "1", Answer.NEVER),
        ("a", "a1", Answer.NEVER),  # a variable has a digit
        ("_%ä", "x 1ä", Answer.MAYBE),
        ("%" + "x" * 3000 + "%", "1 " + "x" * 3000, Answer.ALWAYS),
        ("%" + "x" * 3001 + "%", "1 " + "x" * 3000, Answer.NEVER),
        ("%" + "x" * 5000 + "%", "1", Answer.MAYBE),  # too long to be tried
    ],
)
def test_what_a_template_says_of_a_pattern(pattern: str, text: str, answer: Answer) -> None:
    assert said(Like("m", pattern), [text]) == [answer]


@pytest.mark.parametrize(
    ("length", "rows", "answer"),
    [
        (300, 200, Answer.NEVER),
        (600, 200, Answer.MAYBE),
        (600, 9_000, Answer.NEVER),
        (1900, 9_000, Answer.MAYBE),
    ],
)
def test_long_patterns_over_many_templates_of_few_rows_are_left_to_the_text(
    length: int, rows: int, answer: Answer
) -> None:
    array = split(pa.array([f"{'a' * n} 1" for n in range(200)]), 200)
    layout = layout_of(templates_of(array))
    pattern = Like("m", f"%{'b' * length}%")
    found = answers(pattern, templates_of(array), layout, alphabets_of(array), rows)
    assert found.tolist() == [answer] * 200


@pytest.mark.parametrize("length", [1, 62, 63, 64, 65, 127, 128, 129, 300])
def test_a_variable_may_be_longer_than_a_word_of_states(length: int) -> None:
    run = "a" * length
    for pattern, answer in (
        (f"{run}1", Answer.MAYBE),
        (f"1{run}", Answer.MAYBE),
        (f"{run}1{run}", Answer.MAYBE),
        (f"{run}%{run}1{run}", Answer.MAYBE),
        (run, Answer.NEVER),  # a variable has a digit
        (f"{run}c1", Answer.NEVER),
        (f"1{run}c{run}", Answer.NEVER),
        (f"{run}1{run} {run}", Answer.NEVER),
    ):
        assert said(Like("m", pattern), ["a1"]) == [answer], pattern


def test_values_have_one_template() -> None:
    texts = ["a 1 b", "a 22 b", "a x1 b", "nothing varies", ""]
    maybe, never, always = Answer.MAYBE, Answer.NEVER, Answer.ALWAYS
    equal = Compare("m", Op.EQ, pa.scalar("a 1 b"))
    assert said(equal, texts) == [maybe, maybe, never, never, never]
    other = Compare("m", Op.NE, pa.scalar("nothing varies"))
    assert said(other, texts) == [always, always, always, never, always]
    among = IsIn("m", pa.array(["nothing varies", "a y2 b", ""]))
    assert said(among, texts) == [never, never, maybe, always, always]
    assert said(IsIn("m", pa.array([], pa.string())), texts) == [never] * 5
    assert matching(Not(equal), {"m": pa.array(texts)}, 5).to_pylist() == [False] + [True] * 4


def test_words_that_vary_may_be_any_token() -> None:
    words = varying_words_in([pa.array(["user \x13 went"])])
    texts = ["user ann went", "user 42 went", "user went away", "user bo7 went"]
    maybe, never = Answer.MAYBE, Answer.NEVER
    for condition, answers_of in (
        (Compare("m", Op.EQ, pa.scalar("user eve went")), [maybe, maybe, never, maybe]),
        (Compare("m", Op.EQ, pa.scalar("user 7 went")), [maybe, maybe, never, maybe]),
        (Compare("m", Op.EQ, pa.scalar("user went away")), [never, never, maybe, never]),
        (Compare("m", Op.EQ, pa.scalar("user eve-7 went")), [never] * 4),
        (IsIn("m", pa.array(["x", "user eve went"])), [maybe, maybe, never, maybe]),
        (Like("m", "user ann %"), [maybe, maybe, never, maybe]),
        (Like("m", "%eve%"), [never] * 4),  # their alphabet has no e
    ):
        assert said(condition, texts, words=words) == answers_of, condition


def test_many_values_are_not_held_to_many_templates_with_words() -> None:
    texts = [f"{'a' * n} went" for n in range(1, 601)]
    words = varying_words_in([pa.array([f"\x13 {'b' * n}" for n in range(1, 601)])])
    array = split(pa.array([f"x {'b' * n}" for n in range(1, 601)]), 600, words)
    templates, layout = templates_of(array), layout_of(templates_of(array))
    assert len(templates) == 600
    for count, answer in ((10, Answer.NEVER), (600, Answer.MAYBE)):
        found = answers(
            IsIn("m", pa.array(texts[:count])), templates, layout, alphabets_of(array), 600
        )
        assert found.tolist() == [answer] * 600


def test_case_beyond_ascii_is_left_to_the_text() -> None:
    for letter, other in (("k", "\u212a"), ("s", "\u017f"), ("\u212a", "k"), ("ä", "Ä")):
        assert said(Like("m", f"%{letter}%", ignores_case=True), [f"x {other}"]) == [Answer.MAYBE]
        assert said(Like("m", f"%{letter}%"), [f"x {other}"]) == [Answer.NEVER]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(TEXTS, min_size=1, max_size=200),
    st.lists(PATTERNS, min_size=1, max_size=4),
    st.booleans(),
    st.integers(0, 80),
)
def test_answers_do_not_depend_on_the_templates_before(
    texts: list[str], patterns: list[str], ignores_case: bool, length: int
) -> None:
    """What a pattern of one word remembers of variables gives what a longer one works out anew."""
    array = split(pa.array(texts, pa.string()), len(texts))
    templates, alphabets = templates_of(array), alphabets_of(array)
    layout = layout_of(templates)
    condition = Like("m", "%".join(patterns) + "x" * length, ignores_case)
    found = answers(condition, templates, layout, alphabets, len(texts))
    for place in range(len(templates)):
        alone = templates.slice(place, 1)
        slots = alphabets[layout.firsts[place] : layout.firsts[place + 1]]
        assert answers(condition, alone, layout_of(alone), slots, len(texts))[0] == found[place]


@pytest.mark.parametrize("rows", [0, 1, 7, 8, 9, 1000])
def test_rows_hold_as_their_templates_do(rows: int) -> None:
    rng = np.random.default_rng(rows)
    codes, holds = rng.integers(0, 5, rows, np.int32), rng.integers(0, 2, 5).astype(np.uint8)
    bits = np.full((rows + 7) // 8, 255, dtype=np.uint8)
    native.arrays.patterns.hold(codes, holds, bits)
    expected = np.packbits(holds[codes], bitorder="little")
    assert bits.tolist() == expected.tolist()
    for code in (-1, 5, 2**31 - 1) if rows else ():
        codes[rng.integers(rows)] = code
        with pytest.raises(ValueError):
            native.arrays.patterns.hold(codes, holds, bits)
    with pytest.raises(ValueError):
        native.arrays.patterns.hold(codes, holds, np.zeros(len(bits) + 1, dtype=np.uint8))
