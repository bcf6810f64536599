"""Strings as templates and variables: split and joined, stored and read, gathered, hashed, measured."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Sequence
from io import BytesIO
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment.arrays.dividing import VaryingWords, find_varying_words, split, varying_words_in
from lsm_fragment.arrays.hashing import column_contributions
from lsm_fragment.arrays.sizes import cumulative_bits, max_templated_bytes, total_bytes
from lsm_fragment.arrays.storage import plain
from lsm_fragment.arrays.templated import (
    coded_templates,
    codes_of,
    joined,
    layout_of,
    max_text_bytes,
    slots_of,
    templated_type,
    templates_of,
    text,
)
from lsm_fragment.arrays.types import is_templated, uncoded_type, value_type
from lsm_fragment.blocks.layout import BlockKind
from lsm_fragment.container.block import Block
from lsm_fragment.container.block_reader import BlockReader
from lsm_fragment.container.chunk import Chunk, make_chunk
from lsm_fragment.container.reader import FragmentReader
from lsm_fragment.container.writer import WriterOptions
from lsm_fragment.encodings import template, vocabulary
from lsm_fragment.encodings.coding import decode_array, encode_array
from lsm_fragment.encodings.node import NODE_BYTES, Encoding, pack_nodes
from lsm_fragment.encodings.template import Precedent, encode_by_templates
from lsm_fragment.gather.columns import gather, gather_arrays
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import pieces_of
from lsm_fragment.gather.templates import with_few_templates
from lsm_fragment.keys.extremes import min_max
from tests.support import spec_reader
from tests.support.fragments import BytesSource, write_fragment

TOKEN = re.compile(r"[0-9A-Za-z\x11-\x13\x80-\U0010ffff]+")
PIECES = st.sampled_from(
    [
        *(
            "",
            "7",
            "42",
            "007",
            "0",
            "9" * 19,
            "9" * 20,
            "1" * 63,
            "x" * 64,
            "y3" * 70,
            " " * 65,
            "\0",
            "\n",
        ),
        *(
            "abc",
            "a1",
            "ü2",
            "٣",
            "\x11",
            "\x12",
            "\x13",
            " ",
            "=",
            ", ",
            "/",
            "-",
            "took ",
            " ms",
            "é",
            "🦆",
        ),
    ]
)
TEXTS = st.lists(PIECES, max_size=12).map("".join) | st.text(max_size=40)
COLUMNS = st.lists(st.none() | TEXTS, min_size=1, max_size=40)


def block_of(chunk: Chunk) -> Block:
    return BlockReader(BytesIO(chunk.block(BlockKind.DATA)), "mem").read_block("v")


def read_by_specification(chunk: Chunk, kind: str) -> list[object]:
    return spec_reader.decode(spec_reader.Block(chunk.block(BlockKind.DATA), 0), {"kind": kind})


def template_of(text: str) -> str:
    """Returns the template of a string, as the specification says."""

    def mark(token: re.Match[str]) -> str:
        word = token[0]
        if re.fullmatch("[0-9]{1,19}", word):
            return "\x11"
        return "\x12" if re.search("[0-9\x11-\x13]", word) else word

    return TOKEN.sub(mark, text)


def shape_of(text: str) -> str:
    return TOKEN.sub("\x11", text)


@st.composite
def templates_with_words(draw: st.DrawFn, texts: list[str]) -> list[str]:
    """Draws templates of strings, in which some more tokens are variables."""

    def mark(token: re.Match[str]) -> str:
        return "\x13" if draw(st.booleans()) else token[0]

    return [TOKEN.sub(mark, template_of(text)) for text in texts if draw(st.booleans())]


def words_for(values: Sequence[str | None], data: st.DataObject) -> VaryingWords:
    """Draws words that are variables in strings."""
    texts = [value for value in values if value is not None]
    return varying_words_in([pa.array(data.draw(templates_with_words(texts)), pa.string())])


def template_by(templates: list[str], text: str) -> str:
    """Returns the template of a string that has words as variables where templates of its shape have some."""
    alike = [
        TOKEN.findall(template) for template in templates if shape_of(template) == shape_of(text)
    ]
    places = {
        place for tokens in alike for place, token in enumerate(tokens[:256]) if token == "\x13"
    }
    tokens = iter(range(len(text)))
    return TOKEN.sub(
        lambda token: "\x13" if next(tokens) in places else template_of(token[0]), text
    )


def logs(rows: int, seed: int = 1) -> pa.Array:
    """Lines of a few templates, with numbers of few and of many values, texts, nulls and an odd one."""
    rng = random.Random(seed)
    lines = [
        None if n % 31 == 3
        else "\x11 odd 12" if n % 97 == 5
        else f"[{n:06d}] user u{rng.randrange(50)} took {rng.randrange(10**rng.randrange(1, 12))} ms" if n % 3
        else f"disk {rng.choice('abc')}{rng.randrange(3)} at {rng.randrange(100):02d}% of {rng.randrange(4)}"
        for n in range(rows)
    ]  # fmt: skip
    return pa.array(lines, pa.string())


@settings(max_examples=300)
@given(COLUMNS, st.sampled_from([pa.string(), pa.large_string()]), st.data())
def test_any_text_is_divided_and_joined(
    values: list[str | None], dtype: pa.DataType, data: st.DataObject
) -> None:
    start = data.draw(st.integers(0, len(values)))
    array = pa.array(values, dtype).slice(start)
    texts = [value for value in array.to_pylist() if value is not None]
    with_words = data.draw(templates_with_words(texts))
    found = split(array, len(values), varying_words_in([pa.array(with_words, dtype)]))
    if found is None:
        assert array.null_count == len(array)
        return
    found.validate(full=True)
    assert joined(found).equals(array)
    templates = [template_by(with_words, text) for text in texts]
    assert templates_of(found).to_pylist() == list(dict.fromkeys(templates))
    text_bytes = sum(len(value.encode()) for value in array.to_pylist() if value is not None)
    variables = found.field(1).nbytes + found.field(2).nbytes
    assert variables <= text_bytes * 129 // 128 + 9 * len(array) + 16
    part = found.slice(data.draw(st.integers(0, len(array))))
    assert joined(part).equals(array.slice(len(array) - len(part)))


@pytest.mark.parametrize("before", ["-", "x-", "7-"])
@pytest.mark.parametrize("size", [1, 2, 15, 16, 17, 63, 64, 65, 128, 200])
def test_tokens_are_found_wherever_they_lie(before: str, size: int) -> None:
    """Across any number of the words of 64 bytes that are looked at at once."""
    tokens = ["x" * size, "7" + "x" * (size - 1), "x" * (size - 1) + "7", "7" * size]
    lead = [(before * 70)[:count] for count in range(140)]
    texts = [f"{start}{token}{end}" for start in lead for token in tokens for end in ("", " z9")]
    found = split(pa.array(texts), len(texts))
    assert found is not None
    templates = [template_of(text) for text in texts]
    assert coded_templates(found).to_pylist() == templates
    assert joined(found).to_pylist() == texts


@settings(max_examples=200)
@given(COLUMNS, st.sampled_from([pa.string(), pa.large_string()]), st.data())
def test_any_templated_array_is_stored_and_read(
    values: list[str | None], dtype: pa.DataType, data: st.DataObject
) -> None:
    array = pa.array(values * 17, dtype)  # as many rows as there may be templates
    if (found := split(array, len(array), words_for(values, data))) is None:
        return
    encoded = encode_array(found)
    for keep in (False, True):
        read = decode_array(encoded.meta, encoded.raw, dtype, len(array), keep_templates=keep)
        assert is_templated(read.type) == (keep and encoded.encoding is Encoding.TEMPLATE)
        text = joined(read) if is_templated(read.type) else read
        text.validate(full=True)
        assert text.equals(array)
    chunk = make_chunk(found, level=1)
    assert read_by_specification(chunk, str(dtype)) == array.to_pylist()


@settings(max_examples=200)
@given(COLUMNS, st.data())
def test_what_is_asked_of_templates_is_what_their_text_says(
    values: list[str | None], data: st.DataObject
) -> None:
    array = pa.array(values, pa.string())
    if (found := split(array, len(values), words_for(values, data))) is None:
        return
    assert np.array_equal(column_contributions("c", found), column_contributions("c", array))
    assert min_max(found) == min_max(array)
    assert np.array_equal(cumulative_bits(found), cumulative_bits(array))
    assert total_bytes(found) == total_bytes(array)
    assert max_text_bytes(found) >= sum(
        len(value.encode()) for value in values if value is not None
    )
    assert max_templated_bytes(found) >= total_bytes(array)


@given(
    st.lists(st.text(st.sampled_from("\0a\x10\x11\x12\x13\x91\u0412"), max_size=30), max_size=8),
    st.integers(0, 3),
    st.sampled_from([pa.string(), pa.large_string()]),
)
def test_slots_are_counted_wherever_their_marks_lie(
    templates: list[str], start: int, dtype: pa.DataType
) -> None:
    array = pa.array(templates, dtype).slice(start)
    slots = slots_of(array)
    assert slots.numbers.tolist() == [text.count("\x11") for text in templates[start:]]
    texts = [text.count("\x12") + text.count("\x13") for text in templates[start:]]
    assert slots.texts.tolist() == texts
    layout = layout_of(array)
    kinds = layout.kinds.tolist()
    assert (slots.all_numbers, slots.all_texts) == (
        kinds.count(0x11),
        len(kinds) - kinds.count(0x11),
    )
    assert layout.have_words().tolist() == ["\x13" in text for text in templates[start:]]


def requests(rows: int, seed: int = 1) -> pa.Array:
    """Lines whose levels and users together make nearly as many templates as there are lines."""
    rng = random.Random(seed)
    users = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(400)]
    kinds = [(f"{word} failed", word) for word in ("disk", "cache", "queue", "index")]
    lines = []
    for _ in range(rows):
        kind, place = rng.choice(kinds)
        lines.append(
            f"level={rng.choice(('info', 'warn'))} {kind} for {rng.choice(users)} on {place}, then "
            f"{rng.choice(users)} waited {rng.randrange(999)} ms"
        )
    return pa.array(lines)


def test_words_are_variables_only_where_they_vary(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vocabulary, "MIN_TEXT_BYTES", 1 << 40)
    array = requests(20_000)
    found = split(array, len(array), find_varying_words(array))
    assert found is not None
    assert sorted(templates_of(found).to_pylist()) == sorted(
        f"level={level} {word} failed for \x13 on {word}, then \x13 waited \x11 ms"
        for level in ("info", "warn")
        for word in ("disk", "cache", "queue", "index")
    )
    assert joined(found).equals(array)
    assert not len(find_varying_words(logs(20_000)).shapes)
    chunk, as_text = make_chunk(array, level=1), make_chunk(array.cast(pa.binary()), level=1)
    assert (chunk.encoding, as_text.encoding) == ("TEMPLATE", "VARLEN")
    assert len(chunk.meta + chunk.stored) < 0.7 * len(as_text.meta + as_text.stored)
    assert block_of(chunk).decode(pa.string()).equals(array)
    assert (
        read_by_specification(make_chunk(array[:3000], level=1), "string")
        == array[:3000].to_pylist()
    )


@pytest.mark.parametrize("first", ["x" * 10**6, None, ""])
def test_odd_rows_do_not_keep_words_from_being_found(first: str | None) -> None:
    lines = [None if n % 3 == 0 else line for n, line in enumerate(requests(9000).to_pylist())]
    array = pa.array([first] * 9 + lines)
    assert len(find_varying_words(array).shapes) == len(find_varying_words(array[9:]).shapes) == 1


def test_places_of_very_many_words_are_chosen_by_how_many_they_are() -> None:
    """The best of 250 places is sought for a while only."""
    rng = random.Random(7)
    lines = [
        ",".join(rng.choices("nnnnnnnnnnnnxy", k=250)) + f",{rng.randrange(9)}" for _ in range(3000)
    ]
    array = pa.array(lines)
    found = split(array, len(array), find_varying_words(array))
    assert found is not None
    assert joined(found).equals(array)
    assert len(templates_of(found)) < 300


@pytest.mark.parametrize("tokens", [63, 64, 65, 255, 256, 257, 320, 600])
@pytest.mark.parametrize("last", ["w", "7", "x7"])
@pytest.mark.parametrize("end", ["", "."])
def test_only_the_first_256_tokens_of_a_string_are_words(tokens: int, last: str, end: str) -> None:
    """Tokens with digits behind them are variables, too."""
    line = ["w", "5", "stay", "x1"] * 150
    value = " ".join([*line[: tokens - 1], last]) + end
    marked = [
        "\x13" if token == "w" and place < 256 else template_of(token)
        for place, token in enumerate(TOKEN.findall(value))
    ]
    template = " ".join(marked) + end
    array = pa.array([value, value])
    found = split(array, 2, varying_words_in([pa.array([template])]))
    assert found is not None
    assert templates_of(found).to_pylist() == [template]
    assert joined(found).equals(array)


def test_words_that_few_templates_tell_apart_stay_in_them() -> None:
    """Three words that always come together are one choice, not three."""
    rng = random.Random(6)
    triples = [[rng.choice("abcdefgh") * 5 for _ in range(3)] for _ in range(30)]
    lines = [
        "{} of {} and {} by {}".format(*rng.choice(triples), f"{rng.getrandbits(40):010x}".translate(
            str.maketrans("0123456789", "ghijklmnop")))
        for _ in range(8000)
    ]  # fmt: skip
    array = pa.array(lines)
    found = split(array, len(array), find_varying_words(array))
    assert found is not None
    assert set(templates_of(found).to_pylist()) == {
        "{} of {} and {} by \x13".format(*triple) for triple in triples
    }


@pytest.mark.parametrize("array", [
    pa.array([], pa.string()), pa.nulls(9, pa.string()), pa.array(["", None, "x"] * 30),
    pa.array(["x" * 100_000 + " 1"] * 3), pa.array([f"{n} " * 400 for n in range(300)]),
    pa.array([" ".join(f"w{chr(97 + n * m % 26)}" for m in range(400)) for n in range(600)]),
])  # fmt: skip
def test_any_strings_are_looked_at_for_words(array: pa.Array) -> None:
    for part in (array, array[1:]):
        found = split(part, len(part), find_varying_words(part))
        assert found is None if part.null_count == len(part) else joined(found).equals(part)


@pytest.mark.parametrize("sizes", [[9000], [3000, 1, 5999], [8999, 1]])
def test_text_is_divided_as_the_rows_that_it_is_gathered_with(sizes: list[int]) -> None:
    """However many pieces it comes in: the bytes of an output may not depend on them."""
    other, array = requests(9000, seed=2), requests(9000, seed=3)
    templated = split(other, len(other), find_varying_words(other))
    assert templated is not None
    starts = np.cumsum([0, *sizes])
    pieces = [array[start : start + size] for start, size in zip(starts, sizes, strict=False)]
    origins = Origins.of(np.tile(np.array([0, 1], dtype=np.uint16), 9000), 2)
    found = gather(pieces_of([[templated], pieces], pa.string()), origins)
    assert len(templates_of(found)) == 8
    assert joined(found).to_pylist() == [
        line for pair in zip(other.to_pylist(), array.to_pylist(), strict=True) for line in pair
    ]
    whole = gather(pieces_of([[templated], [array]], pa.string()), origins)
    assert make_chunk(found, level=1) == make_chunk(whole, level=1)


@pytest.mark.parametrize("batch_bytes", [0, 4_000, 1 << 20])
def test_small_pieces_of_many_sources_are_divided_together(
    batch_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many are divided at once changes no byte, whatever form the pieces between them have."""
    forms: list[Callable[[pa.Array], pa.Array]] = [
        lambda array: array, lambda array: split(array, len(array)), lambda array: array[3:],
        lambda array: array.dictionary_encode(), lambda array: pa.nulls(len(array)),
    ]  # fmt: skip
    sources = [[forms[n % 5](logs(20 + n, seed=n)), logs(n % 3, seed=n)] for n in range(100)]
    rows = [[row for array in source for row in plain(array).to_pylist()] for source in sources]
    order = np.repeat(np.arange(100), [len(source) for source in rows]).astype(np.uint16)
    order = np.random.default_rng(4).permutation(order)

    def gathered() -> pa.Array:
        return gather(pieces_of(sources, pa.string()), Origins.of(order, 100))

    whole = gathered()
    monkeypatch.setattr("lsm_fragment.gather.templates._BATCH_BYTES", batch_bytes)
    found = gathered()
    assert is_templated(found.type)
    assert make_chunk(found, level=1) == make_chunk(whole, level=1)
    taken = [iter(source) for source in rows]
    assert joined(found).to_pylist() == [next(taken[source]) for source in order.tolist()]


def test_a_reader_gives_templates_to_those_who_ask() -> None:
    array = logs(3000)
    data = write_fragment(pa.table({"k": range(3000), "v": array}), "k", WriterOptions(1000))
    reader = FragmentReader(BytesSource(data), len(data), "mem")
    for keep in (False, True):
        found = reader.read_storage(["k", "v"], [0, 2], keep_templates=keep)
        assert [is_templated(group[1].type) for group in found] == [keep, keep]
        strings = pa.concat_arrays([text(group[1]) for group in found])
        assert strings.equals(pa.concat_arrays([array[:1000], array[2000:]]))


def test_more_templates_than_allowed_are_not_divided() -> None:
    array = pa.array([f"{'a' * n} 1" for n in range(100)])
    assert split(array, 99) is None
    assert split(array, 100) is not None


@pytest.mark.parametrize("rows", [0, 1, 63, 64, 65, 1024, 5000])
def test_columns_of_logs_are_read_as_they_were(rows: int) -> None:
    array = logs(rows)
    chunk = make_chunk(array, level=1)
    assert (chunk.encoding == "TEMPLATE") == (rows >= 1024)
    assert block_of(chunk).decode(pa.string()).equals(array)
    plain = min_max(array)
    assert (chunk.min, chunk.max, chunk.null_count) == (*plain, array.null_count)
    if chunk.encoding == "TEMPLATE":
        assert chunk.decoded_bytes == total_bytes(array)
        kept = block_of(chunk).decode(pa.string(), keep_templates=True)
        assert is_templated(kept.type)
        assert make_chunk(kept, level=1) == chunk


@pytest.mark.parametrize(
    "kept",
    [lambda n: n % 3 == 0, lambda n: n % 3 == 1 and n % 31 != 3, lambda n: n >= 2000],
    ids=["one template goes", "the first goes, and nulls", "a slice"],
)
def test_a_chunk_has_the_templates_in_use_in_the_order_of_their_first_use(
    kept: Callable[[int], bool],
) -> None:
    array = logs(4000)
    whole = split(array, len(array))
    assert whole is not None
    mask = pa.array([kept(n) for n in range(len(array))])
    found, alone = whole.filter(mask), split(array.filter(mask), len(array))
    assert alone is not None
    assert templates_of(found) != templates_of(alone)
    assert make_chunk(found, level=1) == make_chunk(alone, level=1)


def test_free_text_repeated_values_and_binaries_are_not_divided() -> None:
    rng = random.Random(2)
    words = ["".join(rng.choices("abcdefghij", k=5)) for _ in range(500)]
    free = pa.array([" ".join(rng.choices(words, k=12)) for _ in range(3000)])
    json = pa.array([f'{{"{rng.choice(words)}": "{rng.choice(words)}"}}' for _ in range(3000)])
    few = pa.array([f"value {n % 7}" for n in range(3000)])
    binary = logs(3000).cast(pa.binary())
    found = [make_chunk(array, level=1).encoding for array in (free, json, few, binary)]
    assert found == ["VARLEN", "VARLEN", "DICTIONARY", "VARLEN"]


def free_text(rows: int, seed: int = 2) -> pa.Array:
    rng = random.Random(seed)
    words = ["".join(rng.choices("abcdefghij", k=rng.randrange(3, 9))) for _ in range(2000)]
    return pa.array([" ".join(rng.choices(words, k=rng.randrange(5, 14))) for _ in range(rows)])


@pytest.fixture
def searches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The rows of each chunk that was searched."""
    found: list[int] = []
    search = template._search
    monkeypatch.setattr(vocabulary, "MIN_TEXT_BYTES", 1 << 40)

    def noted(array: pa.Array, *others: Any) -> template._Found:
        found.append(len(array))
        return search(array, *others)

    monkeypatch.setattr(template, "_search", noted)
    return found


@pytest.mark.parametrize(("made", "encoding"), [(free_text, None), (requests, Encoding.TEMPLATE)])
def test_what_was_found_for_a_column_holds_for_its_next_chunks(
    made: Callable[[int], pa.Array], encoding: Encoding | None, searches: list[int]
) -> None:
    array, precedent = made(9000), Precedent()
    alone = encode_by_templates(array)
    nodes = [encode_by_templates(array, precedent) for _ in range(20)]
    assert {None if node is None else node.encoding for node in nodes} == {encoding}
    assert (
        len(searches) == 5
    )  # the one alone, then before 2, 4, 8 and more chunks that are not searched
    if alone is not None:
        assert all(node is not None and pack_nodes(node) == pack_nodes(alone) for node in nodes)


def test_a_column_that_changes_is_searched_anew(searches: list[int]) -> None:
    """At once if its templates no longer fit, soon if it was text."""
    precedent = Precedent()
    assert encode_by_templates(requests(9000), precedent) is not None
    assert encode_by_templates(free_text(9000), precedent) is None
    assert len(searches) == 2
    found = [encode_by_templates(requests(9000), precedent) for _ in range(4)]
    assert [node is not None for node in found] == [False, False, True, True]


def test_small_chunks_tell_nothing_of_larger_ones(searches: list[int]) -> None:
    precedent = Precedent()
    for rows in (300, 8192, 9 * 8192):
        encode_by_templates(free_text(rows), precedent)
    assert searches == [300, 8192, 9 * 8192]


@pytest.mark.parametrize(("made", "encoding"), [(free_text, None), (logs, Encoding.TEMPLATE)])
def test_a_small_chunk_tells_of_others_that_are_hardly_larger(
    made: Callable[[int], pa.Array], encoding: Encoding | None, searches: list[int]
) -> None:
    precedent = Precedent()
    nodes = [encode_by_templates(made(rows), precedent) for rows in (1500, 2250, 1500, 2300)]
    assert {None if node is None else node.encoding for node in nodes} == {encoding}
    assert searches == [1500, 2300]


def test_known_templates_are_compared_with_text_that_became_regular() -> None:
    rng = random.Random(4)
    noise = pa.array(
        [f"request {rng.getrandbits(48)} took {rng.randrange(10**6)} ms" for _ in range(3000)]
    )
    regular = pa.array([f"/api/v1/users/{n}/orders/{n}/items/{n}" for n in range(3000)])
    precedent = Precedent()
    assert encode_by_templates(noise, precedent) is not None
    alone, after = (encode_by_templates(regular, known) for known in (Precedent(), precedent))
    assert (alone is None) == (after is None)


def long_lines(rows: int) -> pa.Array:
    """Lines of 200 templates, each with many slots, so that a sample has only a few rows for each of them."""
    rng = random.Random(3)
    ids = [f"{rng.getrandbits(64):016x}-{rng.getrandbits(64):016x}" for _ in range(100)]
    kinds = [" ".join("".join(rng.choices("abcdefgh", k=6)) for _ in range(6)) for _ in range(200)]
    return pa.array(
        f"{rng.choice(kinds)} {rng.choice(ids)} {rng.choice(ids)}"
        + "".join(f" n={rng.randrange(10**6)}" for _ in range(14))
        for _ in range(rows)
    )


def test_long_lines_are_divided_if_their_templates_recur() -> None:
    array = long_lines(12_000)
    found, as_text = make_chunk(array, level=1), make_chunk(array.cast(pa.binary()), level=1)
    assert (found.encoding, as_text.encoding) == ("TEMPLATE", "VARLEN")
    assert len(found.meta + found.stored) < 0.8 * len(as_text.meta + as_text.stored)
    few = array.slice(0, 300)  # where templates and slots take what their variables spare
    assert make_chunk(few, level=1).encoding == "VARLEN"


def test_templates_of_a_small_chunk_may_take_a_fifth_of_its_text() -> None:
    rng = random.Random(4)
    words = ["".join(rng.choices("abcdefgh", k=6)) for _ in range(500)]
    kinds = [" ".join(rng.choices(words, k=18)) for _ in range(300)] * 5
    rng.shuffle(kinds)
    array = pa.array(f"{kind} {rng.randrange(10**9)} {rng.randrange(10**9)}" for kind in kinds)
    found, as_text = make_chunk(array, level=1), make_chunk(array.cast(pa.binary()), level=1)
    assert (found.encoding, as_text.encoding) == ("TEMPLATE", "VARLEN")
    assert len(found.meta + found.stored) < len(as_text.meta + as_text.stored)


def test_values_of_a_megabyte_are_divided() -> None:
    array = pa.array([f"{n} " + "x7 12 " * 170_000 for n in range(3)])
    found = split(array, 3)
    assert found is not None
    assert joined(found).equals(array)
    assert np.array_equal(column_contributions("c", found), column_contributions("c", array))
    encoded = encode_array(pa.concat_arrays([found] * 16))
    assert encoded.encoding is Encoding.TEMPLATE or encoded.encoding is Encoding.VARLEN
    read = decode_array(encoded.meta, encoded.raw, pa.string(), 48)
    assert read.equals(pa.concat_arrays([array] * 16))


@pytest.mark.parametrize("seed", range(8))
def test_rows_are_gathered_whatever_form_their_sources_have(seed: int) -> None:
    rng = random.Random(seed)
    plain = [logs(rng.choice((1, 40, 400)), seed * 10 + n) for n in range(3)]
    forms = [
        lambda array: split(array, len(array)),
        lambda array: array,
        lambda array: array.dictionary_encode(),
        lambda array: pa.nulls(len(array)),
    ]
    shapes = [forms[0], *(rng.choice(forms) for _ in plain[1:])]
    arrays = [shape(array) for shape, array in zip(shapes, plain, strict=True)]
    origins = np.array(
        rng.sample(
            [n for n, array in enumerate(plain) for _ in range(len(array))], sum(map(len, plain))
        ),
        dtype=np.uint16,
    )
    rows = [
        iter([None] * len(array) if pa.types.is_null(form.type) else array.to_pylist())
        for array, form in zip(plain, arrays, strict=True)
    ]
    expected = [next(rows[origin]) for origin in origins.tolist()]
    pieces = [[form.slice(0, cut), form.slice(cut)] for form in arrays for cut in [len(form) // 3]]
    found = gather_arrays(pieces, Origins.of(origins, len(pieces)))
    if is_templated(found.type):
        used = list(dict.fromkeys(codes_of(found)[np.asarray(found.is_valid())].tolist()))
        assert used == list(range(len(templates_of(found))))
        found = joined(found)
    assert found.to_pylist() == expected


@pytest.mark.parametrize(("start", "stop"), [(0, 1000), (1000, 1020), (900, 1300), (1020, 1420)])
def test_pieces_weigh_what_their_rows_take_however_uneven_these_are(start: int, stop: int) -> None:
    lines = [f"took {n} ms" for n in range(1000)]
    lines += ["took " + "7 " * 5000 + "ab7 " * 5000] * 20
    lines += [f"x a{n} {n}" for n in range(400)]
    found = split(pa.array(lines), len(lines))
    assert found is not None
    rows = found.slice(start, stop - start)
    pieces = pieces_of([[rows.slice(0, 7)], [rows.slice(7)]], pa.string())
    origins = np.array([0] * 7 + [1] * (len(rows) - 7), dtype=np.uint16)
    gathered = gather(pieces, Origins.of(origins, 2))
    own = sum(gathered.field(n).nbytes for n in (1, 2)) + 4 * len(gathered)
    held, most = pieces.weigh()
    assert own <= held <= own + 3 * templates_of(rows).nbytes + 100
    assert most >= max(held, total_bytes(gathered))


@pytest.mark.parametrize("dtype", [pa.string(), pa.large_string()])
@pytest.mark.parametrize("is_divided", [False, True])
def test_of_a_large_dictionary_only_what_rows_use_is_weighed(
    dtype: pa.DataType, *, is_divided: bool
) -> None:
    array = pa.array(
        [None, *(f"{number:x}".replace("1", "i") * 40 for number in range(5000))], dtype
    )
    array = split(array, len(array)) if is_divided else array.dictionary_encode()
    assert array is not None
    few = pieces_of([[array.slice(0, 9)], [array.slice(4000, 9)]], dtype)
    used = total_bytes(few.array(0)) + total_bytes(few.array(1))
    held, most = few.weigh()
    assert used - 80 <= held <= 2 * used + 100
    assert used <= most <= 2000 * 18
    whole = pieces_of([[array], [array]], dtype).weigh()[0]
    again = pieces_of([[array] * 9, [array]], dtype).weigh()[0]
    assert whole * 4 < again <= whole * 6  # each piece may bring its own


@pytest.mark.parametrize("distinct", [1, 98, 99, 100, 300])
@pytest.mark.parametrize("rows_of_piece", [1, 7, 99, 400])
def test_whether_rows_stay_templated_does_not_depend_on_their_pieces(
    distinct: int, rows_of_piece: int
) -> None:
    lines = pa.array([f"took {n} ms" for n in range(100)])
    others = pa.array([f"{'a' * (n % distinct)} at 7" for n in range(300)])
    parts = [others.slice(at, rows_of_piece) for at in range(0, 300, rows_of_piece)]
    origins = np.array([0, 1, 1, 1] * 100, dtype=np.uint16)
    gathered = gather_arrays([[split(lines, 1)], parts], Origins.of(origins, 2))
    found = with_few_templates(gathered)
    assert is_templated(found.type) == (distinct + 1 <= 400 // 4)
    expected = [lines[n // 4] if n % 4 == 0 else others[n // 4 * 3 + n % 4 - 1] for n in range(400)]
    assert text(found).to_pylist() == [value.as_py() for value in expected]


def test_the_type_of_templated_arrays_is_told_from_structs() -> None:
    assert is_templated(templated_type(pa.string()))
    assert not is_templated(pa.struct([("template", pa.string()), ("variables", pa.binary())]))
    assert not is_templated(pa.struct([]))


def test_a_value_type_looks_through_dictionaries_and_templates() -> None:
    for dtype in (pa.string(), pa.dictionary(pa.int32(), pa.string()), templated_type(pa.string())):
        assert value_type(dtype) == pa.string()
    column = pa.struct([("a", pa.dictionary(pa.int32(), pa.string()))])
    assert uncoded_type(column) == column  # a logical type, which is_templated would mistake


def nodes_of(meta: bytes) -> list[bytearray]:
    return [bytearray(meta[at : at + NODE_BYTES]) for at in range(0, len(meta), NODE_BYTES)]


def test_every_changed_byte_of_a_chunk_is_refused_or_read_as_text() -> None:
    array = pa.array([f"[{n:03d}] user u{n % 7} took {n * 7919 % 977} ms" for n in range(200)])
    encoded = encode_array(split(array, 5))
    assert encoded.encoding is Encoding.TEMPLATE
    rng = random.Random(3)
    refused = 0
    for at in range(len(encoded.meta) + len(encoded.raw)):
        meta, raw = bytearray(encoded.meta), bytearray(encoded.raw)
        if at < len(meta):
            meta[at] ^= 1 << rng.randrange(8)
        else:
            raw[at - len(meta)] ^= 1 << rng.randrange(8)
        for keep in (False, True):
            try:
                read = decode_array(bytes(meta), bytes(raw), pa.string(), 200, keep_templates=keep)
            except ValueError:
                refused += 1
                continue
            text = joined(read) if is_templated(read.type) else read
            text.validate(full=True)
            assert len(text) == 200
    assert refused > len(encoded.meta)


def test_codes_that_name_more_variables_than_there_are_take_no_memory() -> None:
    text = "took " + "7 " * 1000
    array = pa.array([text] * 64 + ["7"] * 6400)
    encoded = encode_array(split(array, 5))
    nodes = nodes_of(encoded.meta)
    codes = 1 + 2  # after the root, the templates and their lengths
    assert nodes[0][0] == Encoding.TEMPLATE
    nodes[codes][:] = (
        bytes([Encoding.CONSTANT, 0, 0, 0, 0, 0, 0, 0]) + nodes[codes][8:24] + bytes(8)
    )
    asked: list[int] = []
    with pytest.raises(ValueError, match=r".+"):
        decode_array(b"".join(nodes), encoded.raw, pa.string(), len(array), reserve=asked.append)
    assert sum(asked) < 8 << 20


def test_rows_kept_as_templates_stand_for_no_more_than_a_dictionary_may() -> None:
    """A forged number of rows, which take no bytes, would keep a merge busy for days."""
    encoded = encode_array(split(pa.array(["x" * (1 << 20)] * 64), 1))
    nodes, rows = nodes_of(encoded.meta), 1 << 20
    codes = 1 + 2  # after the root, the templates and their lengths
    for node in (nodes[0], nodes[codes]):
        assert int.from_bytes(node[8:16], "little") == 64
        node[8:16] = rows.to_bytes(8, "little")
    with pytest.raises(ValueError, match="bytes of memory are needed"):
        decode_array(b"".join(nodes), encoded.raw, pa.string(), rows, keep_templates=True)


def test_memory_in_which_characters_are_checked_is_asked_for() -> None:
    plain, beyond_ascii = (
        pa.array([f"{letter}{n:07d}" * 10 for n in range(200)]) for letter in ("ab", "ä")
    )
    asked: list[list[int]] = []
    for array in (plain, beyond_ascii):
        sizes: list[int] = []
        encoded = encode_array(split(array, 1))
        assert encoded.encoding is Encoding.TEMPLATE
        read = decode_array(
            encoded.meta, encoded.raw, pa.string(), 200, keep_templates=True, reserve=sizes.append
        )
        assert joined(read).equals(array)
        asked.append(sizes)
    assert sum(asked[1]) - sum(asked[0]) == 200 * (90 + 1)


def test_a_character_in_two_texts_is_refused() -> None:
    array = pa.array(["ä1 ä1"] * 64)
    encoded = encode_array(split(array, 1))
    assert encoded.encoding is Encoding.TEMPLATE
    raw = encoded.raw.replace("\x03ä1\x03ä1".encode(), b"\x031\xc3\xa4\x03\xc3\xa41", 1)
    assert (
        joined(decode_array(encoded.meta, raw, pa.string(), 64, keep_templates=True))[0].as_py()
        == "1ä ä1"
    )
    raw = encoded.raw.replace("\x03ä1\x03ä1".encode(), b"\x0311\xc3\x03\xa411", 1)
    with pytest.raises(ValueError):
        decode_array(encoded.meta, raw, pa.string(), 64, keep_templates=True)
