"""Text as numbers of words: the loops, what is chosen, what is refused, what it takes."""

from __future__ import annotations

import random
import re
import string
import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from compactor.resources.merge_plan import WORD_TABLE_BYTES
from lsm_fragment import native
from lsm_fragment.arrays.buffers import pack_bits
from lsm_fragment.arrays.sizes import running_totals
from lsm_fragment.arrays.templated import text
from lsm_fragment.arrays.types import is_worded
from lsm_fragment.arrays.worded import MAX_NUMBERS_FRACTION, expanded, renumbered
from lsm_fragment.container.chunk import encode_chunk, make_chunk
from lsm_fragment.encodings import vocabulary
from lsm_fragment.encodings.coding import decode_array, encode_array
from lsm_fragment.encodings.letters import encode_strings
from lsm_fragment.encodings.node import Encoding, Node, join_buffers, pack_nodes, stored_bytes
from lsm_fragment.encodings.template import Precedent
from lsm_fragment.encodings.varlen import text_parts
from lsm_fragment.gather.origins import Origins
from lsm_fragment.gather.pieces import GatherArray, Span, pieces_of_spans
from lsm_fragment.gather.words import gather_words
from lsm_fragment.native.gather.words import TABLE_BYTES, WordTable
from tests.format.test_decode import by_specification, constant, decoded, packed, with_nulls
from tests.format.test_letters import TYPES, ids
from tests.format.test_templates import free_text
from tests.support.wording import refuses

WORD = re.compile(rb"[0-9A-Za-z\x80-\xff]*[^0-9A-Za-z\x80-\xff]*")
PIECES = st.sampled_from([
     "the ", "The", "größe ", "ünïcödé", ", ", "...", "\n\tat ", "a", "7", "12345", "2026-11-", "x" * 16,
     "y" * 17, "ñ" * 9, "z" * 40, "-" * 20, "\0", "word\0", "\0\0", "", "日本語の長い文字列です", "😀" * 5,
])  # fmt: skip
TEXTS = st.lists(PIECES, max_size=12).map("".join)


def spelled(number: int) -> str:
    """What a number stands for that is no word's."""
    if number < 256:
        return chr(number)
    if number < 61_692:
        return f"{number - 60_692:03}"
    letters = string.digits + string.ascii_uppercase + string.ascii_lowercase
    first, second = divmod(number - 61_692, 62)
    return letters[first] + letters[second]


def numbers_of(
    texts: Sequence[bytes], max_numbers: int = 1 << 20
) -> list[list[bytes | str]] | None:
    """The numbers of each row as native code gives them: words as bytes, and what is spelled as texts."""
    data = np.frombuffer(b"".join(texts), dtype=np.uint8)
    offsets = np.cumsum([0, *map(len, texts)])
    found = native.encodings.vocabulary.encode(offsets, data, max_numbers)
    if found is None:
        return None
    numbers, counts, sizes, words = found
    ends = np.cumsum([0, *sizes.tolist()]).tolist()
    known = [words[start:stop] for start, stop in pairwise(ends)]
    assert ends[-1] == len(words)
    assert len(set(known)) == len(known)
    values = np.frombuffer(numbers, dtype=np.uint16).tolist()
    rows, at = [], 0
    for count in counts.tolist():
        some = values[at : at + count]
        rows.append([known[n - 256] if 256 <= n < 60_692 else spelled(n) for n in some])
        at += count
    assert at == len(values)
    return rows


def joined(row: Sequence[bytes | str]) -> bytes:
    return b"".join(n if isinstance(n, bytes) else n.encode("latin-1") for n in row)


def divided(text: bytes) -> list[bytes | str]:
    """The words of a row, by a pattern."""
    found: list[bytes | str] = []
    for word in WORD.findall(text):
        while word:
            size = min(len(word), 16)
            while size < len(word) and size > 13 and word[size] & 0xC0 == 0x80:
                size -= 1
            piece = word[:size]
            letters = re.match(rb"[0-9][0-9A-Za-z]{4,}", piece)
            if letters is not None:
                size = 3 if letters[0].isdigit() else 2
                found += re.findall(f".{{{size}}}|..|.", letters[0].decode())
                piece = piece[: len(letters[0])]
            else:
                found.append(piece)
            word = word[len(piece) :]
    return found


@given(st.lists(TEXTS, max_size=30))
def test_rows_are_divided_into_words(texts: list[str]) -> None:
    rows = [value.encode() for value in texts]
    assert numbers_of(rows) == list(map(divided, rows))


@given(st.lists(st.binary(max_size=80), min_size=1, max_size=20), st.integers(1, 3000))
def test_words_may_cross_strips_and_end_with_the_memory(rows: list[bytes], repeat: int) -> None:
    rows = rows * (1 + 20_000 // (1 + sum(map(len, rows)))) if repeat > 2000 else rows
    found = numbers_of(rows, 1 << 22)
    assert found is not None
    assert [joined(row) for row in found] == rows
    assert found == list(map(divided, rows))


LINES = st.lists(st.lists(PIECES, min_size=1, max_size=12).map("".join), min_size=1, max_size=6)


@given(
    LINES, st.randoms(use_true_random=False), st.sampled_from(["\n", "\n\tat ", "\n\n  é", "\r\n"])
)
def test_lines_that_recur_have_the_numbers_of_their_words(
    lines: list[str], rng: random.Random, line_break: str
) -> None:
    rows = [line_break.join(rng.choices(lines, k=rng.randrange(1, 9))).encode() for _ in range(60)]
    assert numbers_of(rows) == list(map(divided, rows))


@pytest.mark.parametrize("kinds", [9, 30_000], ids=["that recur", "that hardly recur"])
def test_rows_of_many_lines_are_divided_into_words(kinds: int) -> None:
    rng = random.Random(kinds)
    lines = [
        f"at org.part{rng.randrange(kinds)}.Service{n}.call(Service.java:{n})" for n in range(kinds)
    ]
    rows = [
        "\n\t".join([f"error {n}: {n * 7919}", *rng.choices(lines, k=6)]).encode()
        for n in range(4000)
    ]
    assert numbers_of(rows) == list(map(divided, rows))
    rows = [b"\n".join(rows), rows[0], b"\n".join(rows)]
    assert numbers_of(rows) == list(map(divided, rows))


def test_lines_of_words_without_room_are_spelled_as_other_text_is() -> None:
    many = [b"w%x-" % (n * 2654435761 % 2**32 | 2**31) for n in range(70_000)]
    rows = [b"\n".join(many[at : at + 7]) for at in range(0, len(many), 7)]
    rows = [part for row in rows for part in (row, b"a line that comes again and again\n" * 9)]
    found = numbers_of(rows, 1 << 22)
    assert found is not None
    assert [joined(row) for row in found] == rows
    assert found[1] == divided(rows[1])


@pytest.mark.parametrize("most", range(36, 46))
def test_lines_that_recur_count_as_their_numbers(most: int) -> None:
    rows = [b"one two three four\n" * 10] * 3
    assert (numbers_of(rows, 3 * most) is None) == (most < 40)


def test_words_without_room_are_spelled() -> None:
    many = [b"%x-" % (n * 2654435761 % 2**32 | 2**31) for n in range(70_000)]
    many = [b"w" + word for word in many]
    found = numbers_of(many)
    assert found is not None
    words = [row for row in found if len(row) == 1]
    assert 60_000 < len(words) <= 60_436
    for row, word in zip(found, many, strict=True):
        assert row == [word] or row == re.findall("[0-9A-Za-z]{2}|.", word.decode())
    assert [joined(row) for row in found] == many


def test_text_of_too_many_numbers_has_none() -> None:
    rows = [b"one two three"] * 3
    assert numbers_of(rows, 9 + 16) is not None
    assert numbers_of(rows, 8) is None


# --- chunks ---------------------------------------------------------------------------------


@st.composite
def columns(draw: st.DrawFn) -> pa.Array:
    """Strings or binaries of words, with nulls, sliced."""
    dtype = draw(st.sampled_from(TYPES))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    pool = draw(st.lists(TEXTS, min_size=1, max_size=9))
    null_share = draw(st.sampled_from([0, 0.3]))
    values = [
        None if rng.random() < null_share else " ".join(rng.choice(pool, rng.integers(0, 6)))
        for _ in range(draw(st.sampled_from([1, 2, 300])))
    ]
    array = pa.array(values, pa.string()).cast(pa.large_binary()).cast(dtype)
    return array.slice(draw(st.integers(0, len(array) - 1)))


def node_of(array: pa.Array) -> Node:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "MIN_TEXT_BYTES", 0)
        patch.setattr(vocabulary, "MAX_NUMBERS_FRACTION", 99)
        found = vocabulary.encode_by_vocabulary(*text_parts(array), is_decided=True)
    assert found is not None
    return found.node


@given(columns())
def test_text_comes_back(array: pa.Array) -> None:
    root = node_of(array)
    meta, raw = pack_nodes(root), join_buffers(root)
    found = decode_array(meta, raw, array.type, len(array))
    found.validate(full=True)
    assert found.equals(array)
    assert by_specification(root, array.type) == array.to_pylist()
    kept = decode_array(meta, raw, array.type, len(array), keep_words=True)
    assert is_worded(kept.type) == (array.type == pa.string())
    assert text(kept).equals(array)
    for start in (0, len(array) // 2):
        assert text(kept.slice(start, 7)).equals(array.slice(start, 7))


def worded(array: pa.Array) -> pa.Array:
    root = node_of(array)
    kept = decode_array(
        pack_nodes(root), join_buffers(root), array.type, len(array), keep_words=True
    )
    assert is_worded(kept.type)
    return kept


@given(st.lists(st.lists(TEXTS | st.none(), min_size=1), min_size=1, max_size=4))
def test_a_table_gives_words_of_many_chunks_the_same_numbers(
    chunks: list[list[str | None]],
) -> None:
    table = WordTable()
    for values in chunks:
        array = pa.array(values, pa.string())
        start = len(values) // 3
        made = renumbered(worded(array).slice(start), table)
        assert made is not None
        found, rows = made
        assert expanded(rows.with_words(found)).equals(array.slice(start))
        copy = rows.copied(found.slice(1), 1)
        assert expanded(copy.with_words(found.slice(1))).equals(array.slice(start + 1))
        assert copy.nbytes == rows.nbytes - 8
    sizes, words = table.listed(table.count)
    ends = np.cumsum([0, *sizes.tolist()]).tolist()
    assert len({words[a:b] for a, b in pairwise(ends)}) == len(sizes)


def test_a_full_table_has_no_room_for_other_words() -> None:
    table = WordTable()
    few = pa.array([f"w{n * 2654435761 % 2**32:08x}-" for n in range(30_000)])
    others = pa.array([f"v{n * 2654435761 % 2**32:08x}-" for n in range(60_000)])
    first = renumbered(worded(few), table)
    assert first is not None
    assert renumbered(worded(others), table) is None
    assert 60_000 < table.count <= 60_436
    again, rows = renumbered(worded(few), table) or (None, None)
    assert again is not None
    assert rows is not None
    assert expanded(rows.with_words(again)).equals(few)
    assert again.equals(first[0])


def test_an_array_that_spells_words_for_lack_of_room_gets_no_numbers() -> None:
    """Ids and numbers are spelled by every writer."""
    always = [
        "123456",
        "12345678901234567890",
        "9876a ",
        "b 2026112",
        "1a2b3c4d5e6f7g8h9",
        "12345x6",
    ]
    assert renumbered(worded(pa.array(always)), WordTable()) is not None
    many = pa.array([f"v{n * 2654435761 % 2**32:08x}-" for n in range(80_000)])
    assert renumbered(worded(many), WordTable()) is None
    three, two = 60_692 + 123, 61_692 + 62 * 4 + 5
    letters, mixed = 61_692 + 62 * 40 + 41, 61_692 + 62 * 4 + 41
    for values in (
        (98, 98, 33), (49, 50, 32), (49, 50, 51), (49, 50, 51, 52, 53, 32), (49, 50, 51, 52, 53), (three,),
        (three, 49), (two, two), (two, 49, two), (letters, letters, letters), (two, two, two), (three, mixed),
        (two, three), (mixed, two), (three, three, three, three, three, three), (three, 50, 51),
        (mixed, mixed, 33),
    ):  # fmt: skip
        root = forged((256, 257, *values, 33), counts=packed(2, len(values), 1))
        array = decode_array(pack_nodes(root), join_buffers(root), pa.string(), 3, keep_words=True)
        assert renumbered(array, WordTable()) is None


@given(st.lists(st.lists(TEXTS | st.none(), min_size=1), min_size=1, max_size=4))
def test_gathered_rows_have_the_words_that_a_writer_finds_in_their_text(
    chunks: list[list[str | None]],
) -> None:
    table, arrays = WordTable(), []
    for values in chunks:
        array, rows = renumbered(worded(pa.array(values, pa.string())), table) or (None, None)
        assert array is not None
        arrays.append(GatherArray(array, pa.string(), words=rows))
    assume(any(array.words is not None for array in arrays))
    lengths = [len(values) for values in chunks]
    sources = np.repeat(np.arange(len(chunks)), lengths)[::-1].astype(np.uint16)
    (pieces,) = pieces_of_spans(
        [[Span([array], 0, rows)] for array, rows in zip(arrays, lengths, strict=True)]
    )
    strings, words = gather_words(pieces, Origins.of(sources, len(chunks)))
    expected = [value for values in reversed(chunks) for value in values]
    assert strings.to_pylist() == expected
    _, sizes, data = text_parts(strings)
    found = native.encodings.vocabulary.encode(
        running_totals(sizes), native.as_bytes(data), data.nbytes
    )
    most = int(data.nbytes * MAX_NUMBERS_FRACTION)
    assert found is not None
    if len(found[0]) > 2 * most:
        assert words is None
    else:
        assert words is not None
        assert [bytes(words.numbers), words.counts.tolist(), words.sizes.tolist(), words.text] == [
            bytes(found[0]), found[1].tolist(), found[2].tolist(), found[3]
        ]  # fmt: skip


def test_the_memory_of_a_table_is_planned() -> None:
    assert WORD_TABLE_BYTES == TABLE_BYTES


def test_text_whose_numbers_might_be_too_many_to_count_is_expanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    root = forged()
    for most, kept in ((11, True), (10, False)):
        monkeypatch.setattr(vocabulary, "_MAX_KEPT_BYTES", most)
        found = decode_array(pack_nodes(root), join_buffers(root), pa.string(), 3, keep_words=True)
        assert is_worded(found.type) == kept
        assert text(found).to_pylist() == ["at a.b", "", "at b!"]


# --- what is chosen -------------------------------------------------------------------------


def test_prose_is_stored_by_its_words() -> None:
    array = free_text(9000)
    chunk = make_chunk(array, level=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vocabulary, "MIN_TEXT_BYTES", 1 << 40)
        as_text = make_chunk(array, level=1)
    assert (chunk.encoding, as_text.encoding) == ("VOCABULARY", "VARLEN")
    assert len(chunk.stored) < 0.85 * len(as_text.stored)
    assert chunk.decoded_bytes == as_text.decoded_bytes
    assert (chunk.min, chunk.max, chunk.null_count) == (as_text.min, as_text.max, 0)
    binary = make_chunk(array.cast(pa.binary()), level=1)
    assert (binary.encoding, binary.stored) == (chunk.encoding, chunk.stored)


def test_a_small_chunk_does_not_change_how_larger_ones_are_stored() -> None:
    """Such as the last row group of a file, before the first of the next file."""
    precedent = Precedent()
    chunks = [
        encode_chunk(free_text(rows), precedent=precedent).compressed(1)
        for rows in (9000, 900, 9000, 9000)
    ]
    encodings = [chunk.encoding for chunk in chunks]
    assert encodings == ["VOCABULARY", "VARLEN", "VOCABULARY", "VOCABULARY"]


def test_little_text_of_many_rows_does_not_change_how_more_text_is_stored() -> None:
    precedent = Precedent()
    short = pa.array([text[:20] for text in free_text(9000).to_pylist()])
    encode_chunk(short, precedent=precedent)
    assert (
        encode_chunk(free_text(40_000), precedent=precedent).compressed(1).encoding == "VOCABULARY"
    )


@pytest.mark.parametrize(
    "array",
    [
        free_text(900),
        pa.array(ids(9000, alphabet=b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+/=")),
        pa.array([" ".join(ids(4, n, 9)) for n in range(9000)]),
    ],
    ids=["little text", "letters", "words that do not recur"],
)  # fmt: skip
def test_other_text_is_not(array: pa.Array) -> None:
    assert make_chunk(array, level=1).encoding != "VOCABULARY"


def test_text_that_is_words_elsewhere_stays_words_though_its_letters_could_be_packed() -> None:
    """As where many inputs, each with words of its own, are merged."""
    rng = random.Random(1)
    words = [
        "".join(rng.choices(string.ascii_lowercase, k=rng.randrange(4, 10))) for _ in range(20_000)
    ]
    array = pa.array([" ".join(rng.choices(words, k=6)) for _ in range(20_000)])
    letters, by_words = encode_strings(array), encode_strings(array, by_vocabulary=True)
    assert (letters.encoding.name, by_words.encoding.name) == ("LETTERS", "VOCABULARY")
    assert 1.3 * stored_bytes(by_words) < stored_bytes(letters)


def test_packed_letters_that_take_less_than_words_are_packed() -> None:
    array = pa.array([" ".join(ids(4, n, 9)) for n in range(9000)])
    assert encode_strings(array, by_vocabulary=True).encoding.name == "LETTERS"


def test_text_is_counted_and_reserved_before_it_is_made() -> None:
    array = free_text(9000)
    encoded = encode_array(array)
    assert encoded.encoding is Encoding.VOCABULARY
    size, asked = sum(len(value.encode()) for value in array.to_pylist()), list[int]()
    decode_array(encoded.meta, encoded.raw, pa.string(), 9000, reserve=asked.append)
    assert size in asked
    assert encoded.decoded_bytes >= size + 4 * 9001
    with refuses(ValueError):
        decode_array(encoded.meta, encoded.raw, pa.string(), 9000, max_bytes=size - 1)


# --- what is refused ------------------------------------------------------------------------


def forged(
    numbers: Sequence[int] = (256, 257, 98, 256, 98, 33),
    words: Sequence[bytes] = (b"at ", b"a."),
    counts: Node | None = None,
    *,
    count: int | None = None,
) -> Node:
    """The example of the specification, or another node of three values."""
    listed = Node(
        encoding=Encoding.VARLEN,
        length=len(words),
        param=sum(map(len, words)),
        buffers=(b"".join(words),),
        children=(packed(*map(len, words)) if words else constant(0, 0),),
    )
    return Node(
        encoding=Encoding.VOCABULARY,
        length=3,
        param=len(numbers) if count is None else count,
        buffers=(np.array(numbers, dtype="<u2").tobytes(),),
        children=(listed, packed(3, 0, 3) if counts is None else counts),
    )


def test_the_example_of_the_specification_is_read() -> None:
    for dtype in TYPES:
        found = decoded(forged(), dtype).cast(pa.binary()).to_pylist()
        assert found == [b"at a.b", b"", b"at b!"]
    assert by_specification(forged(), pa.string()) == ["at a.b", "", "at b!"]


REFUSED = {
    "a number without a word": forged((256, 257, 258, 256, 98, 33)),
    "numbers without words": forged(words=()),
    "an empty word": forged(words=(b"at ", b"")),
    "a word that is too long": forged(words=(b"at ", b"x" * 17)),
    "more words than numbers": forged(words=[b"x"] * 60_437),
    "a number beyond all words": forged((256, 257, 98, 256, 60_691, 33)),
    "more numbers than there are": forged(count=9, counts=packed(3, 0, 6)),
    "a negative number of numbers": forged(count=-1),
    "very many numbers": forged(count=2**63 - 1),
    "counts of fewer numbers": forged(counts=packed(3, 0, 2)),
    "counts of more numbers": forged(counts=packed(3, 1, 3)),
    "no counts": replace(forged(), children=forged().children[:1]),
    "counts in the place of words": replace(forged(), children=forged().children[::-1]),
    "words that are null": replace(
        forged(),
        children=(
            Node(encoding=Encoding.NULL, length=2, null_count=2),
            forged().children[1],
        ),
    ),
    "a width": replace(forged(), width=3),
}


@pytest.mark.parametrize("name", REFUSED)
def test_vocabularies_that_contradict_themselves_are_refused(name: str) -> None:
    root = REFUSED[name]
    for dtype in TYPES:
        with pytest.raises((ValueError, AssertionError, LookupError, struct.error)):
            by_specification(root, dtype)
        for keep in (False, True):
            with refuses(ValueError):
                decode_array(pack_nodes(root), join_buffers(root), dtype, 3, keep_words=keep)


@pytest.mark.parametrize("dtype", [pa.int64(), pa.bool_(), pa.binary(4), pa.list_(pa.string())])
def test_a_vocabulary_is_for_strings_and_binaries(dtype: pa.DataType) -> None:
    with refuses(ValueError):
        decode_array(pack_nodes(forged()), join_buffers(forged()), dtype, 3)


@pytest.mark.parametrize(
    ("numbers", "words"),
    [((256, 257, 98, 256, 98, 33), (b"\xc3", b"\xa4.")), ((0xC3, 0xA4, 98, 256, 98, 33), (b"a",))],
    ids=["words", "bytes"],
)
def test_strings_of_parts_that_are_none_are_not_kept(
    numbers: Sequence[int], words: Sequence[bytes]
) -> None:
    """Only together they are UTF-8; what is gathered row by row has to be, too."""
    root = forged((256, 257, 98, 256, 257, 33) if len(words) > 1 else numbers, words)
    kept = decode_array(pack_nodes(root), join_buffers(root), pa.string(), 3, keep_words=True)
    assert kept.type == pa.string()
    assert kept.to_pylist() == by_specification(root, pa.string())


def test_text_that_is_not_utf8_is_refused_for_strings() -> None:
    root = forged((256, 257, 98, 256, 98, 33), (b"\xc3", b"a."))
    for dtype in TYPES:
        if "binary" in str(dtype):
            assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)
        else:
            with refuses(ValueError):
                decoded(root, dtype)


def test_numbers_under_nulls_are_ignored() -> None:
    rng = np.random.default_rng(5)
    root = with_nulls(rng, forged(counts=packed(2, 2, 2)))
    for dtype in TYPES:
        assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)
    kept = decode_array(pack_nodes(root), join_buffers(root), pa.string(), 3, keep_words=True)
    assert kept.to_pylist() == by_specification(root, pa.string())


def test_bytes_under_nulls_need_not_be_utf8() -> None:
    data = (np.frombuffer(b"a\xff\xffb", dtype=np.uint8),)
    by_lengths = Node(
        encoding=Encoding.VARLEN, length=3, param=4, buffers=data, children=(packed(1, 2, 1),)
    )
    for root in (by_lengths, forged((97, 0xFF, 0xFF, 98), counts=packed(1, 2, 1))):
        validity = pack_bits(np.array([True, False, True]))
        root = replace(root, null_count=1, has_validity=True, buffers=(validity, *root.buffers))
        for dtype in TYPES:
            found = decoded(root, dtype).cast(pa.binary()).to_pylist()
            assert found == [b"a", None, b"b"]
            assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)
