"""Text of few different letters: the loops, what is chosen, what is refused, what it takes."""

from __future__ import annotations

import random
import re
from base64 import b64encode
from uuid import UUID

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from lsm_fragment import native
from lsm_fragment.arrays.buffers import pack_bits
from lsm_fragment.blocks.compression import decompress
from lsm_fragment.blocks.layout import Codec
from lsm_fragment.container.chunk import make_chunk
from lsm_fragment.container.footer import FragmentSummary
from lsm_fragment.encodings import choice
from lsm_fragment.encodings import letters as by_letters
from lsm_fragment.encodings.coding import decode_array, encode_array
from lsm_fragment.encodings.dictionary import by_dictionary
from lsm_fragment.encodings.node import Encoding, Node, join_buffers, pack_nodes
from tests.format.test_decode import by_specification, constant, decoded, packed, with_nulls
from tests.support.wording import refuses

HEX = b"0123456789abcdef"
BASE_32 = b"234567ABCDEFGHIJKLMNOPQRSTUVWXYZ"
BASE_64 = b"-0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_abcdefghijklmnopqrstuvwxyz"
TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
ALPHABETS = st.integers(1, 64).flatmap(
    lambda most: st.sets(st.integers(0, 255), min_size=1, max_size=most).map(sorted).map(bytes)
)
SIZES = st.sampled_from([0, 1, 2, 7, 8191, 8192, 8193, 70_001])
HOLES = st.sampled_from([1, 2, 8, 9, 17, 36, 300, 1024]).flatmap(
    lambda length: st.integers(0, 2**32).map(lambda seed: some_holes(length, seed))
)
NO_HOLES = np.empty(0, dtype=np.uint8)


def some_holes(length: int, seed: int) -> np.ndarray:
    """Places of a row that have letters: at least one, in runs or alone."""
    rng = np.random.default_rng(seed)
    runs = rng.integers(1, rng.choice([2, 8, 50]), length)
    holes = np.repeat(np.arange(length) % 2, runs)[:length].astype(np.uint8)
    return holes if holes.any() else 1 - holes


def ids(count: int, seed: int = 1, length: int = 32, alphabet: bytes = HEX) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(alphabet.decode(), k=length)) for _ in range(count)]


def uuids(count: int, seed: int = 1) -> list[str]:
    return [str(UUID(value, version=4)) for value in ids(count, seed)]


def as_bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


def width_of(alphabet: bytes) -> int:
    return max(1, (len(alphabet) - 1).bit_length())


def packed_by_python(letters: bytes, alphabet: bytes, width: int) -> bytes:
    bits = "".join(f"{alphabet.index(letter):0{width}b}"[::-1] for letter in letters)
    bits += "0" * (-len(bits) % 8)
    return bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, len(bits), 8))


def letters(
    text: bytes = b"0a1f",
    alphabet: bytes = b"01af",
    lengths: Node | None = None,
    *,
    width: int = 4,
    codes: bytes | None = None,
    count: int | None = None,
    rows: int = 4,
    frame: Node | None = None,
) -> Node:
    """A node of four strings of one byte each, or of others. text: the letters."""
    return Node(
        encoding=Encoding.LETTERS,
        length=rows,
        width=width,
        param=len(text) if count is None else count,
        buffers=(
            packed_by_python(text, alphabet, width) if codes is None else codes,
            alphabet.ljust(1 << width, b"\0"),
        ),
        children=(frame_of() if frame is None else frame, lengths or constant(1)),
    )


def frame_of(frame: bytes = b"", letter: bytes = b"?") -> Node:
    """The node of a frame, which has null where the byte is `letter`."""
    valid = np.array([byte != letter[0] for byte in frame], dtype=np.bool_)
    nulls = len(frame) - int(np.count_nonzero(valid))
    bitmap = (bytes(pack_bits(valid)),) if nulls else ()
    buffers = (*bitmap, frame.replace(letter, b"\0"))
    return Node(
        encoding=Encoding.PLAIN,
        length=len(frame),
        null_count=nulls,
        param=1,
        has_validity=nulls > 0,
        buffers=buffers,
    )


def unpacked(codes: bytes | pa.Buffer, alphabet: bytes, width: int, count: int) -> bytes:
    """Letters without a frame, unpacked by the loop."""
    stored = pa.py_buffer(alphabet.ljust(1 << width, b"\0"))
    out = native.encodings.letters.unpack(
        pa.py_buffer(codes), stored, width, count, NO_HOLES, NO_HOLES, False
    )
    return bytes(out)


# --- loops ----------------------------------------------------------------------------------


@given(ALPHABETS, SIZES, st.integers(0, 2), st.integers(0, 2**32))
def test_letters_become_their_places_in_the_alphabet_and_back(
    alphabet: bytes, size: int, wider: int, seed: int
) -> None:
    data = bytes(np.random.default_rng(seed).choice(list(alphabet), size).astype(np.uint8))
    width = min(6, width_of(alphabet) + wider)
    codes = native.encodings.letters.pack(as_bytes(data), NO_HOLES, alphabet, width)
    assert codes is not None
    assert bytes(codes) == packed_by_python(data, alphabet, width)
    assert unpacked(codes, alphabet, width, size) == data


@given(HOLES, ALPHABETS, st.integers(0, 999), st.integers(0, 2**32))
def test_rows_become_their_letters_without_the_frame_and_back(
    holes: np.ndarray, alphabet: bytes, rows: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    frame = rng.integers(0, 256, len(holes)).astype(np.uint8)
    text = np.where(holes, rng.choice(list(alphabet), (rows, len(holes))), frame).astype(np.uint8)
    width, count = width_of(alphabet), rows * int(holes.sum())
    codes = native.encodings.letters.pack(text.reshape(-1), holes, alphabet, width)
    assert codes is not None
    assert bytes(codes) == packed_by_python(text[:, holes == 1].tobytes(), alphabet, width)
    stored = pa.py_buffer(alphabet.ljust(1 << width, b"\0"))
    back = native.encodings.letters.unpack(codes, stored, width, count, holes, frame, False)
    assert bytes(back) == text.tobytes()
    occurring = set(text[:, holes == 1].tobytes())
    assert native.encodings.letters.find_alphabet(text.reshape(-1), holes) == bytes(
        sorted(occurring)
    )


@given(st.binary(max_size=150) | st.binary(max_size=9).map(lambda few: few * 20_000))
def test_the_alphabet_has_the_bytes_that_occur(data: bytes) -> None:
    expected = bytes(sorted(set(data)))
    found = native.encodings.letters.find_alphabet(as_bytes(data), NO_HOLES)
    assert found == (expected if len(expected) <= 64 else None)


@given(st.integers(8, 1024), st.integers(1, 200), st.sampled_from([0, 1, 9]), st.integers(0, 2**32))
def test_holes_are_where_rows_differ(length: int, rows: int, changes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    text = np.tile(rng.integers(0, 256, length).astype(np.uint8), (rows, 1))
    text[rng.integers(0, rows, changes), rng.integers(0, length, changes)] ^= np.uint8(4)
    holes = native.encodings.letters.find_holes(text.reshape(-1), length)
    assert list(holes) == list((text != text[0]).any(axis=0))


@pytest.mark.parametrize(("size", "length"), [(0, 8), (7, 7), (2050, 1025), (20, 8), (8, 0)])
def test_rows_that_are_too_short_too_long_or_not_whole_have_no_holes(
    size: int, length: int
) -> None:
    with pytest.raises(ValueError, match="in rows of"):
        native.encodings.letters.find_holes(as_bytes(bytes(size)), length)


@given(st.integers(1, 20_000), st.integers(0, 19_999), st.integers(0, 255))
def test_a_single_byte_beyond_the_alphabet_is_seen(size: int, at: int, byte: int) -> None:
    data = bytearray(b"7" * size)
    data[at % size] = byte
    codes = native.encodings.letters.pack(as_bytes(bytes(data)), NO_HOLES, HEX, 4)
    assert (codes is not None) == (byte in HEX)


@given(
    st.integers(1, 6),
    st.integers(1, 20_000),
    st.integers(0, 19_999),
    st.integers(0, 63),
    st.integers(1, 64),
)
def test_a_single_place_beyond_the_alphabet_is_seen(
    width: int, size: int, at: int, place: int, letters: int
) -> None:
    letters, place, at = min(letters, 1 << width), place & (1 << width) - 1, at % size
    codes = bytearray((size * width + 7) // 8)
    for bit in range(width):
        codes[(at * width + bit) // 8] |= (place >> bit & 1) << (at * width + bit) % 8
    alphabet = bytes(range(50, 50 + letters))
    if place < letters:
        expected = bytes([50]) * at + bytes([50 + place]) + bytes([50]) * (size - at - 1)
        assert unpacked(bytes(codes), alphabet, width, size) == expected
    else:
        with pytest.raises(ValueError, match="beyond their alphabet"):
            unpacked(bytes(codes), alphabet, width, size)


@given(st.integers(1, 6), st.integers(1, 70), st.integers(0, 7))
def test_bits_after_the_last_letter_are_seen(width: int, size: int, bit: int) -> None:
    codes = bytearray((size * width + 7) // 8)
    codes[-1] |= 1 << bit
    if 8 * (len(codes) - 1) + bit < size * width:
        assert unpacked(bytes(codes), BASE_64[: 1 << width], width, size)
    else:
        with pytest.raises(ValueError, match="bits after the last one"):
            unpacked(bytes(codes), BASE_64[: 1 << width], width, size)


@pytest.mark.parametrize(
    ("size", "holes", "alphabet", "width"),
    [
        (4, [], bytes(17), 4),
        (4, [], HEX, 0),
        (4, [], HEX, 7),
        (4, [0, 0], HEX, 4),
        (5, [0, 1], HEX, 4),
        (2050, [1] * 1025, HEX, 4),
    ],
)
def test_letters_that_do_not_fit_their_rows_or_bits_are_not_packed(
    size: int, holes: list[int], alphabet: bytes, width: int
) -> None:
    with pytest.raises(ValueError, match=r"letters|frame"):
        native.encodings.letters.pack(
            as_bytes(b"0" * size), np.array(holes, np.uint8), alphabet, width
        )


# --- round trips ----------------------------------------------------------------------------


@st.composite
def texts(draw: st.DrawFn) -> pa.Array:
    """Strings or binaries of few different letters, with nulls, sliced; some with a frame."""
    dtype = draw(st.sampled_from(TYPES))
    alphabet = draw(ALPHABETS)
    if "string" in str(dtype):
        alphabet = bytes(sorted({byte & 0x7F for byte in alphabet}))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most, null_share = draw(st.sampled_from([3, 40])), draw(st.sampled_from([0, 0.3]))
    holes = draw(HOLES) if draw(st.booleans()) else NO_HOLES
    frame = rng.integers(0, 128, len(holes)).astype(np.uint8)

    def value() -> bytes:
        size = len(holes) or rng.integers(most)
        drawn = rng.choice(list(alphabet), size).astype(np.uint8)
        return bytes(np.where(holes, drawn, frame) if len(holes) else drawn)

    values = [
        None if rng.random() < null_share else value()
        for _ in range(draw(st.sampled_from([1, 2, 300, 1500])))
    ]
    array = pa.array(values, pa.large_binary() if "large" in str(dtype) else pa.binary())
    return array.cast(dtype).slice(draw(st.integers(0, len(array) - 1)))


@given(texts(), st.booleans())
def test_text_of_few_letters_comes_back(array: pa.Array, is_packed: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if is_packed:  # where a codec would do better, and where there are few bytes
            patch.setattr(by_letters, "CODEC_FRACTION", 0)
            patch.setattr(by_letters, "_MIN_LETTERS", 0)
            patch.setattr(choice, "encode_by_templates", lambda *_: None)
        encoded = encode_array(array, is_decided=is_packed)
    found = decode_array(encoded.meta, encoded.raw, array.type, len(array))
    found.validate(full=True)
    assert found.equals(array)


@given(st.integers(0, 2**32), st.sampled_from(TYPES), st.integers(1, 64), st.integers(0, 99))
def test_a_second_reader_finds_the_same_text(
    seed: int, dtype: pa.DataType, count: int, rows: int
) -> None:
    rng = np.random.default_rng(seed)
    alphabet, holes = BASE_64[:count], some_holes(int(rng.integers(1, 40)), seed)
    framed = rng.random() < 0.5
    lengths = rng.integers(0, 3, rows) * len(holes) if framed else rng.integers(0, 5, rows)
    if framed and rows > 1:  # values may be divided anywhere
        lengths[:2] = [lengths[:2].sum(), 0]
    size = int(lengths.sum()) // len(holes) * int(holes.sum()) if framed else int(lengths.sum())
    frame = np.where(holes, ord("?"), rng.integers(65, 90, len(holes))).astype(np.uint8)
    root = letters(
        bytes(rng.choice(list(alphabet), size).astype(np.uint8)),
        alphabet,
        packed(*lengths) if rows else constant(0, 0),
        width=int(rng.integers(width_of(alphabet), 7)),
        rows=rows,
        frame=frame_of(bytes(frame) if framed else b""),
    )
    root = with_nulls(rng, root)
    assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)


def test_the_alphabet_may_begin_with_zero_and_need_not_occur() -> None:
    for alphabet, data in ((b"\0", bytes(4)), (b"\0\x01\xff", b"\xff\0\1\0"), (HEX, b"4444")):
        root = letters(data, alphabet)
        assert b"".join(decoded(root, pa.binary()).to_pylist()) == data
        assert by_specification(root, pa.binary()) == [data[n : n + 1] for n in range(4)]


@pytest.mark.parametrize(
    "nested",
    [
        pa.list_(pa.string()),
        pa.struct([("a", pa.string()), ("b", pa.binary())]),
        pa.map_(pa.string(), pa.string()),
        pa.list_(pa.string(), 2),
    ],
    ids=str,
)
def test_ids_within_other_values_are_packed(nested: pa.DataType) -> None:
    values = iter(ids(4000))
    pairs = [(next(values), next(values)) for _ in range(2000)]
    if pa.types.is_struct(nested):
        array = pa.array([{"a": a, "b": b.encode()} for a, b in pairs], nested)
    else:
        array = pa.array([[pair] if pa.types.is_map(nested) else pair for pair in pairs], nested)
    encoded = encode_array(array)
    assert Encoding.LETTERS in encodings(encoded.meta)
    assert decode_array(encoded.meta, encoded.raw, nested, len(array)).equals(array)


def test_ids_that_recur_are_packed_in_their_dictionary() -> None:
    array = by_dictionary(pa.array(ids(300) * 10))
    assert pa.types.is_dictionary(array.type)
    chunk = make_chunk(array, level=1)
    assert encodings(chunk.meta) == [
        Encoding.DICTIONARY,
        Encoding.PACKED,
        Encoding.LETTERS,
        Encoding.PLAIN,
        Encoding.CONSTANT,
    ]
    raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
    found = decode_array(chunk.meta, raw, pa.string(), len(array), keep_dictionary=True)
    assert found.equals(array)
    # A reader holds the codes, and the text beside its packed letters.
    assert chunk.decoded_bytes == 4 * len(array) + chunk.raw_bytes + 300 * 32


def encodings(meta: bytes) -> list[Encoding]:
    return [Encoding(meta[at]) for at in range(0, len(meta), 32)]


def test_values_of_a_megabyte_are_packed() -> None:
    array = pa.array([*ids(3, length=1 << 20), *ids(2, length=(1 << 20) + 1), None, "", "0"])
    chunk = make_chunk(array, level=1)
    assert (chunk.encoding, len(chunk.stored) < 0.51 * array.nbytes) == ("LETTERS", True)
    raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
    assert decode_array(chunk.meta, raw, pa.string(), len(array)).equals(array)


# --- what is chosen -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("alphabet", "bits"),
    [
        (HEX, 4), (HEX.upper(), 4), (b"0123456789.", 4), (b"ACGTNacgtn#xyz", 4), (b"01", 1),
        (b"ACGT", 2), (b"01234567", 3), (BASE_32, 5), (BASE_64, 6), (BASE_64[2:], 6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("level", [0, 1, 9])
def test_random_text_of_few_letters_is_packed_and_takes_no_codec(
    alphabet: bytes, bits: int, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = pa.array(ids(5000, alphabet=alphabet))
    monkeypatch.setattr(choice, "encode_by_templates", lambda *_: None)
    for dtype in TYPES:
        chunk = make_chunk(values.cast(dtype), level=level)
        assert (chunk.encoding, chunk.codec) == ("LETTERS", Codec.NONE)
        assert len(chunk.stored) == 4 * bits * 5000 + max(8, 1 << bits)


FRAMED = {
    "uuids of random bits": ([str(UUID(value)) for value in ids(5000)], 16),
    "uuids of version 4": (uuids(5000), 15.5),
    "hardware addresses": (
        [":".join(re.findall("..", value)) for value in ids(5000, length=12)],
        6,
    ),
    "base 64 that is padded": (
        [b64encode(UUID(value).bytes).decode() for value in ids(5000)],
        16.5,
    ),
    "tokens with a prefix": (["sess_" + value for value in ids(5000, alphabet=BASE_32)], 20),
}


@pytest.mark.parametrize("name", FRAMED)
@pytest.mark.parametrize("level", [0, 1])
def test_what_all_values_share_is_stored_once(name: str, level: int) -> None:
    values, size = FRAMED[name]
    for dtype in TYPES:
        array = pa.array(values).cast(dtype)
        chunk = make_chunk(array, level=level)
        assert (chunk.encoding, chunk.codec) == ("LETTERS", Codec.NONE)
        assert size * 5000 < len(chunk.stored) < size * 5000 + 150
        assert decode_array(chunk.meta, chunk.stored, dtype, 5000).equals(array)


def test_nulls_and_empty_values_take_no_frame_from_the_others() -> None:
    values: list[str | None] = list(uuids(20_000))
    values[::7] = [None] * len(values[::7])
    values[5000:5050] = [""] * 50
    array = pa.array(values)
    chunk = make_chunk(array, level=1)
    present = len(list(filter(None, values)))
    assert (chunk.encoding, chunk.codec) == ("LETTERS", Codec.NONE)
    assert len(chunk.stored) < 15.5 * present + 20_000 / 8 * 2 + 1000
    assert decode_array(chunk.meta, chunk.stored, pa.string(), len(array)).equals(array)


@pytest.mark.parametrize("place", [0, 3000, 17_000, 19_999])
@pytest.mark.parametrize(
    ("odd", "encoding"),
    [
        ("-" * 36, "VARLEN"),
        ("none", "VARLEN"),
        ("00000000-0000-0000-0000-000000000000", "LETTERS"),
        ("zzzzzzzz-zzzz-4zzz-8zzz-zzzzzzzzzzzz", "VARLEN"),
    ],
)
def test_values_that_the_sample_has_not_change_the_frame(
    place: int, odd: str, encoding: str
) -> None:
    values = uuids(20_000)
    values[place] = odd
    array = pa.array(values)
    chunk = make_chunk(array, level=1)
    assert chunk.encoding == encoding
    raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
    assert decode_array(chunk.meta, raw, pa.string(), len(array)).equals(array)


def test_few_values_and_short_or_long_ones_are_packed_without_a_frame() -> None:
    for values, size in (
        (ids(60, length=64), 32),
        (["a" + value for value in ids(2000, length=6)], 3.5),
        ([value[:-1] + "0" for value in ids(20, length=5000)], 2500),
    ):
        root = encode_array(pa.array(values, pa.binary()), is_decided=True)
        assert encodings(root.meta) == [Encoding.LETTERS, Encoding.PLAIN, Encoding.CONSTANT]
        assert root.raw_bytes - 16 == pytest.approx(size * len(values), abs=8)


def test_a_frame_beyond_ascii_is_for_binaries() -> None:
    values = ["§ " + value for value in ids(5000)]
    text, binary = (
        make_chunk(pa.array(values).cast(t), level=1) for t in (pa.string(), pa.binary())
    )
    assert (text.encoding, binary.encoding) == ("VARLEN", "LETTERS")


def test_text_with_nulls_and_lengths_that_differ_is_packed() -> None:
    values = [value[: 20 + n % 13] for n, value in enumerate(ids(50_000))]
    for mask in (None, np.arange(50_000) % 7 == 0):
        array = pa.array(values, mask=mask)
        chunk = make_chunk(array, level=1)
        assert chunk.encoding == "LETTERS"
        assert len(chunk.stored) < 0.53 * (array.nbytes - 4 * len(array))
        raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
        assert decode_array(chunk.meta, raw, pa.string(), len(array)).equals(array)


def test_text_of_which_a_codec_makes_less_or_of_more_letters_is_not_packed() -> None:
    repeated = [value[:8] * 4 for value in ids(5000)]
    digits = ids(5000, alphabet=b"0123456789")
    dashed = [f"{value[:8]}-{value[: 8 + n % 9]}" for n, value in enumerate(ids(5000))]
    short = ids(30)
    start, stop = ids(4000), ids(4000)
    start[:800] = stop[-800:] = ["0" * 32] * 800
    greek = ids(5000, alphabet=b"abcdef")
    greek[2500] = "αβγ" * 20
    for values in (repeated, digits, dashed, short, start, stop, greek):
        array = pa.array(values)
        assert make_chunk(array.cast(pa.binary()), level=1).encoding == "VARLEN"
        assert make_chunk(array, level=1).encoding != "LETTERS"


def test_only_binaries_have_alphabets_beyond_ascii() -> None:
    rng = np.random.default_rng(1)
    letters = np.frombuffer("αβγδεζηθικ".encode(), dtype=np.uint8).reshape(-1, 2)
    values = [letters[rng.integers(0, 10, 20)].tobytes() for _ in range(5000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(by_letters, "CODEC_FRACTION", 0)
        binary = make_chunk(pa.array(values, pa.binary()), level=1)
        text = make_chunk(pa.array(values, pa.binary()).cast(pa.string()), level=1)
    assert (binary.encoding, text.encoding) == ("LETTERS", "VARLEN")


@pytest.mark.parametrize(
    ("odd", "encoding"), [("f" * 32, "LETTERS"), ("-" * 32, "LETTERS"), ("ghij" * 8, "VARLEN")]
)
def test_bytes_that_the_sample_has_not_are_seen(odd: str, encoding: str) -> None:
    for place in (3000, 17_000):
        values = ids(20_000, alphabet=HEX[:14])
        values[place] = odd
        array = pa.array(values).cast(pa.binary())
        chunk = make_chunk(array, level=1)
        assert chunk.encoding == encoding
        raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
        assert decode_array(chunk.meta, raw, pa.binary(), len(array)).equals(array)


def test_bytes_do_not_depend_on_how_the_array_holds_them() -> None:
    array = pa.array([None, *ids(3000), None, ""])
    again = pa.concat_arrays([pa.array(["zzz", *array.to_pylist()[:100]]), array.slice(100)])
    shifted = again.slice(1)
    assert make_chunk(array, level=1) == make_chunk(shifted, level=1)


# --- what is refused ------------------------------------------------------------------------

REFUSED = {
    "a place beyond the alphabet": letters(codes=b"\x10\x42"),
    "a place beyond the alphabet at the end": letters(
        b"0a1", lengths=packed(1, 1, 1, 0), codes=b"\x10\x04"
    ),
    "bits after the last letter": letters(b"0a1", lengths=packed(1, 1, 1, 0), codes=b"\x10\x12"),
    "bits after the last letter of six": letters(
        b"0a1", width=6, lengths=packed(1, 1, 1, 0), codes=b"\x80\x10\x04"
    ),
    "a byte twice": letters(alphabet=b"01aa", codes=b"\x10\x32"),
    "bytes that do not ascend": letters(alphabet=b"10af", codes=b"\x10\x32"),
    "bytes after the zeros": letters(alphabet=b"01af\0\0b", codes=b"\x10\x32"),
    "a zero that is not the first": letters(alphabet=b"0\x001af", codes=b"\x10\x32"),
    "more letters than codes": letters(count=32, lengths=constant(8)),
    "fewer letters than codes": letters(count=2, lengths=packed(1, 1, 0, 0), codes=bytes(16)),
    "fewer than no letters": letters(b"", count=-1, lengths=constant(0)),
    "very few letters": letters(b"", count=-(2**63), lengths=constant(0)),
    "more letters than there can be": letters(count=2**63 - 1),
    "lengths of more bytes": letters(lengths=packed(1, 1, 1, 2)),
    "lengths of fewer bytes": letters(lengths=packed(1, 1, 1, 0)),
    "no alphabet": replace(letters(), buffers=(b"\x10\x32",)),
    "an alphabet for fewer bits": replace(letters(), width=5, buffers=(b"\x10\x32\0", HEX)),
    "no children": replace(letters(), children=()),
    "no frame": replace(letters(), children=(constant(1),)),
    "a frame in the place of lengths": replace(letters(), children=(constant(1), frame_of())),
    "no width": replace(letters(), width=0),
    "a width of seven bits": replace(letters(), width=7),
    "a width of 255 bits": replace(letters(), width=255),
    "lengths without the frame": letters(frame=frame_of(b"?-")),
    "a frame without letters": letters(frame=frame_of(b"--"), lengths=constant(2)),
    "rows that are not whole": letters(frame=frame_of(b"???-"), lengths=packed(4, 1, 1, 0)),
    "a frame that is too long": letters(frame=frame_of(b"?" + b"-" * 1024), lengths=constant(1025)),
    "a frame of numbers": letters(
        frame=replace(frame_of(b"?-" * 4), length=1, null_count=1, param=8)
    ),
    "a frame of constants": letters(frame=constant(45, 2), lengths=constant(2)),
    "a frame of nulls": letters(
        frame=Node(encoding=Encoding.NULL, length=2, null_count=2), lengths=constant(2)
    ),
    "a frame of other nulls": letters(
        frame=replace(frame_of(b"?-"), null_count=2), lengths=constant(1)
    ),
    "a frame that makes too much": letters(
        count=1_200_000,
        codes=bytes(600_000),
        frame=frame_of(b"?" + b"-" * 1023),
        lengths=constant(307_200_000),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_letters_that_contradict_themselves_are_refused(name: str) -> None:
    root = REFUSED[name]
    for dtype in TYPES:
        if name != "a frame that makes too much":
            with pytest.raises((ValueError, AssertionError, IndexError)):
                by_specification(root, dtype)
        with refuses(ValueError):
            decode_array(pack_nodes(root), join_buffers(root), dtype, 4)


def test_alphabets_and_frames_beyond_ascii_are_refused_for_strings() -> None:
    framed = letters(frame=frame_of(b"?\xc3"), lengths=constant(2))
    for root in (letters(b"0a1\xc3", b"01a\xc3"), framed):
        for dtype in TYPES:
            if "binary" in str(dtype):
                assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)
                assert b"\xc3" in b"".join(decoded(root, dtype).to_pylist())
            else:
                with pytest.raises(AssertionError):
                    by_specification(root, dtype)
                with refuses(ValueError):
                    decoded(root, dtype)


def test_what_stands_in_a_frame_where_letters_do_is_ignored() -> None:
    frame = frame_of(b"?-")
    hidden = replace(frame, buffers=(frame.buffers[0], b"\xc3-"))
    root = letters(frame=hidden, lengths=constant(2))
    assert decoded(root, pa.string()).to_pylist() == ["0-", "a-", "1-", "f-"]
    assert by_specification(root, pa.string()) == ["0-", "a-", "1-", "f-"]


@pytest.mark.parametrize("dtype", [pa.int64(), pa.bool_(), pa.binary(4), pa.list_(pa.string())])
def test_letters_are_for_strings_and_binaries(dtype: pa.DataType) -> None:
    with refuses(ValueError):
        decode_array(pack_nodes(letters()), join_buffers(letters()), dtype, 4)


# --- what it takes --------------------------------------------------------------------------


def test_text_is_counted_and_reserved_before_it_is_unpacked() -> None:
    array = pa.array(ids(4000))
    encoded = encode_array(array)
    text_bytes, offsets_bytes = 4000 * 32, 4 * 4001
    asked: list[int] = []
    decode_array(encoded.meta, encoded.raw, pa.string(), 4000, reserve=asked.append)
    assert text_bytes in asked
    need = text_bytes + offsets_bytes
    assert encoded.decoded_bytes >= need
    decode_array(encoded.meta, encoded.raw, pa.string(), 4000, max_bytes=need)
    with refuses(ValueError):
        decode_array(encoded.meta, encoded.raw, pa.string(), 4000, max_bytes=need - 1)


def test_plans_count_the_text_and_not_its_letters() -> None:
    array = pa.array(ids(4000))
    stats = make_chunk(array, level=1).stats(offset=0, stored_bytes=1)
    assert stats.raw_bytes == 4000 * 16 + 16
    assert stats.decoded_bytes == stats.held_bytes == stats.value_bytes == 4000 * 36
    summary = FragmentSummary()
    summary.add_column("v", [stats], [4000])
    assert (summary.peak_row_bytes, summary.columns["v"].raw) == (36, 4000 * 36)
