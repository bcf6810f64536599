"""Text of few different bytes by half bytes: the loops, what is chosen, what is refused, what it takes."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from format import encode, native
from format.blocks import make_chunk
from format.compression import decompress
from format.decode import decode_array
from format.encode import by_dictionary, encode_array
from format.footer import FragmentSummary
from format.layout import Codec
from format.nodes import Encoding, Node, join_buffers, pack_nodes
from tests.format.test_decode import by_specification, constant, decoded, packed, with_nulls
from tests.support.wording import refuses

HEX = b"0123456789abcdef"
TYPES = [pa.string(), pa.large_string(), pa.binary(), pa.large_binary()]
ALPHABETS = st.binary(min_size=1, max_size=16).map(lambda data: bytes(sorted(set(data))))


def ids(count: int, seed: int = 1, length: int = 32, alphabet: bytes = HEX) -> list[str]:
    rng = random.Random(seed)
    return ["".join(rng.choices(alphabet.decode(), k=length)) for _ in range(count)]


def as_bytes(data: bytes) -> np.ndarray:
    return np.frombuffer(data, dtype=np.uint8)


def packed_by_python(data: bytes, alphabet: bytes) -> bytes:
    places = [alphabet.index(byte) for byte in data] + [0] * (len(data) % 2)
    return bytes(low | high << 4 for low, high in zip(places[::2], places[1::2], strict=True))


def nibbles(
    data: bytes = b"0a1f",
    alphabet: bytes = b"01af",
    lengths: Node | None = None,
    *,
    codes: bytes | None = None,
    size: int | None = None,
    rows: int = 4,
) -> Node:
    """A node of four strings of one byte each, or of others."""
    return Node(
        Encoding.NIBBLES,
        rows,
        param=len(data) if size is None else size,
        buffers=(
            packed_by_python(data, alphabet) if codes is None else codes,
            alphabet.ljust(16, b"\0"),
        ),
        children=(lengths or constant(1),),
    )


# --- loops ----------------------------------------------------------------------------------


@given(ALPHABETS, st.sampled_from([0, 1, 2, 7, 8191, 8192, 8193, 70_001]), st.integers(0, 2**32))
def test_bytes_become_their_places_in_the_alphabet_and_back(
    alphabet: bytes, size: int, seed: int
) -> None:
    data = bytes(np.random.default_rng(seed).choice(list(alphabet), size).astype(np.uint8))
    codes = np.empty((size + 1) // 2, dtype=np.uint8)
    assert native.nibbles.pack(as_bytes(data), alphabet, codes)
    assert codes.tobytes() == packed_by_python(data, alphabet)
    stored = pa.py_buffer(alphabet.ljust(16, b"\0"))
    back = native.nibbles.unpack(pa.py_buffer(codes), stored, size, False)
    assert back.to_pybytes() == data


@given(st.binary(max_size=40) | st.binary(max_size=9).map(lambda few: few * 20_000))
def test_the_alphabet_has_the_bytes_that_occur(data: bytes) -> None:
    expected = bytes(sorted(set(data)))
    found = native.nibbles.find_alphabet(as_bytes(data))
    assert found == (expected if len(expected) <= 16 else None)


@given(st.integers(1, 20_000), st.integers(0, 19_999), st.integers(0, 255))
def test_a_single_byte_beyond_the_alphabet_is_seen(size: int, at: int, byte: int) -> None:
    data = bytearray(b"7" * size)
    data[at % size] = byte
    codes = np.empty((size + 1) // 2, dtype=np.uint8)
    assert native.nibbles.pack(as_bytes(bytes(data)), HEX, codes) == (byte in HEX)


@given(st.integers(1, 20_000), st.integers(0, 19_999), st.integers(0, 15), st.integers(1, 16))
def test_a_single_code_beyond_the_alphabet_is_seen(
    size: int, at: int, code: int, letters: int
) -> None:
    places = np.zeros(size + size % 2, dtype=np.uint8)
    places[at % size] = code
    codes = pa.py_buffer(places[::2] | places[1::2] << 4)
    alphabet = pa.py_buffer(HEX[:letters].ljust(16, b"\0"))
    if code < letters:
        expected = bytes(HEX[place] for place in places[:size])
        assert native.nibbles.unpack(codes, alphabet, size, True).to_pybytes() == expected
    else:
        with pytest.raises(ValueError, match="beyond their alphabet"):
            native.nibbles.unpack(codes, alphabet, size, True)


@pytest.mark.parametrize(("alphabet", "room"), [(bytes(range(17)), 2), (HEX, 1), (HEX, 3)])
def test_no_room_for_codes_is_refused(alphabet: bytes, room: int) -> None:
    with pytest.raises(ValueError, match="alphabet"):
        native.nibbles.pack(as_bytes(b"0123"), alphabet, np.empty(room, dtype=np.uint8))


# --- round trips ----------------------------------------------------------------------------


@st.composite
def texts(draw: st.DrawFn) -> pa.Array:
    """Strings or binaries of few different bytes, with nulls, sliced."""
    dtype = draw(st.sampled_from(TYPES))
    alphabet = draw(ALPHABETS)
    if "string" in str(dtype):
        alphabet = bytes(sorted({byte & 0x7F for byte in alphabet}))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    most, null_share = draw(st.sampled_from([3, 40])), draw(st.sampled_from([0, 0.3]))
    values = [
        None
        if rng.random() < null_share
        else bytes(rng.choice(list(alphabet), rng.integers(most)).astype(np.uint8))
        for _ in range(draw(st.sampled_from([1, 2, 300, 1500])))
    ]
    array = pa.array(values, pa.large_binary() if "large" in str(dtype) else pa.binary())
    return array.cast(dtype).slice(draw(st.integers(0, len(array) - 1)))


@given(texts(), st.booleans())
def test_text_of_few_bytes_comes_back(array: pa.Array, is_packed: bool) -> None:
    with pytest.MonkeyPatch.context() as patch:
        if is_packed:  # where a codec would do better, and where there are few bytes
            patch.setattr(encode, "_CODEC_PAYS", 0)
            patch.setattr(encode, "_LEAST_NIBBLES", 0)
            patch.setattr(encode, "_LEAST_ALPHABET", 0)
            patch.setattr(encode, "_encode_by_templates", lambda array: None)
        encoded = encode_array(array, is_decided=is_packed)
    if is_packed and array.null_count < len(array):
        assert encoded.encoding is Encoding.NIBBLES
    found = decode_array(encoded.meta, encoded.raw, array.type, len(array))
    found.validate(full=True)
    assert found.equals(array)


@given(st.integers(0, 2**32), st.sampled_from(TYPES), st.integers(1, 16), st.integers(0, 99))
def test_a_second_reader_finds_the_same_text(
    seed: int, dtype: pa.DataType, letters: int, count: int
) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 5, count)
    data = bytes(rng.choice(list(HEX[:letters]), int(lengths.sum())).astype(np.uint8))
    root = nibbles(data, HEX[:letters], packed(*lengths) if count else constant(0, 0), rows=count)
    root = with_nulls(rng, root)
    assert decoded(root, dtype).to_pylist() == by_specification(root, dtype)


def test_the_alphabet_may_begin_with_zero_and_need_not_occur() -> None:
    for alphabet, data in ((b"\0", bytes(4)), (b"\0\x01\xff", b"\xff\0\1\0"), (HEX, b"4444")):
        root = nibbles(data, alphabet)
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
    assert Encoding.NIBBLES in encodings(encoded.meta)
    assert decode_array(encoded.meta, encoded.raw, nested, len(array)).equals(array)


def test_ids_that_recur_are_packed_in_their_dictionary() -> None:
    array = by_dictionary(pa.array(ids(300) * 10))
    assert pa.types.is_dictionary(array.type)
    chunk = make_chunk(array, level=1)
    assert encodings(chunk.meta) == [
        Encoding.DICTIONARY,
        Encoding.PACKED,
        Encoding.NIBBLES,
        Encoding.CONSTANT,
    ]
    raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
    found = decode_array(chunk.meta, raw, pa.string(), len(array), keep_dictionary=True)
    assert found.equals(array)
    # A reader holds the codes, and the text beside its half bytes.
    assert chunk.decoded_bytes == 4 * len(array) + chunk.raw_bytes + 300 * 32


def encodings(meta: bytes) -> list[Encoding]:
    return [Encoding(meta[at]) for at in range(0, len(meta), 32)]


def test_values_of_a_megabyte_are_packed() -> None:
    array = pa.array([*ids(3, length=1 << 20), *ids(2, length=(1 << 20) + 1), None, "", "0"])
    chunk = make_chunk(array, level=1)
    assert (chunk.encoding, len(chunk.stored) < 0.51 * array.nbytes) == ("NIBBLES", True)
    raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
    assert decode_array(chunk.meta, raw, pa.string(), len(array)).equals(array)


# --- what is chosen -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "alphabet", [HEX, HEX.upper(), b"0123456789.", b"ACGTNacgtn#xyz", b"acegikmoqsuwyACE"]
)
@pytest.mark.parametrize("level", [0, 1, 9])
def test_random_text_of_few_bytes_is_packed_and_takes_no_codec(
    alphabet: bytes, level: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = pa.array(ids(5000, alphabet=alphabet))
    monkeypatch.setattr(encode, "_encode_by_templates", lambda array: None)
    for dtype in TYPES:
        chunk = make_chunk(values.cast(dtype), level=level)
        assert (chunk.encoding, chunk.codec) == ("NIBBLES", Codec.NONE)
        assert len(chunk.stored) == 16 * 5000 + 16


def test_nulls_and_lengths_that_differ_take_no_codec_from_half_bytes() -> None:
    values = [value[: 20 + n % 13] for n, value in enumerate(ids(50_000))]
    for mask in (None, np.arange(50_000) % 7 == 0):
        array = pa.array(values, mask=mask)
        chunk = make_chunk(array, level=1)
        assert chunk.encoding == "NIBBLES"
        assert len(chunk.stored) < 0.53 * (array.nbytes - 4 * len(array))
        raw = decompress(chunk.codec, chunk.stored, chunk.raw_bytes)
        assert decode_array(chunk.meta, raw, pa.string(), len(array)).equals(array)


def test_text_of_which_a_codec_makes_less_or_of_more_bytes_is_not_packed() -> None:
    repeated = [value[:8] * 4 for value in ids(5000)]
    digits = ids(5000, alphabet=b"0123456789")
    dashed = [f"{value[:8]}-{value[8:]}" for value in ids(5000)]
    short = ids(30)
    start, stop = ids(4000), ids(4000)
    start[:800] = stop[-800:] = ["0" * 32] * 800
    greek = ids(5000, alphabet=b"abcdef")
    greek[2500] = "αβγ" * 20
    for values in (repeated, digits, dashed, short, start, stop, greek):
        array = pa.array(values)
        assert make_chunk(array.cast(pa.binary()), level=1).encoding == "VARLEN"
        assert make_chunk(array, level=1).encoding != "NIBBLES"


def test_only_binaries_have_alphabets_beyond_ascii() -> None:
    rng = np.random.default_rng(1)
    letters = np.frombuffer("αβγδεζηθικ".encode(), dtype=np.uint8).reshape(-1, 2)
    values = [letters[rng.integers(0, 10, 20)].tobytes() for _ in range(5000)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(encode, "_CODEC_PAYS", 0)
        binary = make_chunk(pa.array(values, pa.binary()), level=1)
        text = make_chunk(pa.array(values, pa.binary()).cast(pa.string()), level=1)
    assert (binary.encoding, text.encoding) == ("NIBBLES", "VARLEN")


@pytest.mark.parametrize(
    ("odd", "encoding"), [("f" * 32, "NIBBLES"), ("-" * 32, "NIBBLES"), ("ghij" * 8, "VARLEN")]
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
    "a code beyond the alphabet": nibbles(codes=b"\x10\x42"),
    "a code beyond the alphabet in the last half byte": nibbles(
        b"0a1", lengths=packed(1, 1, 1, 0), codes=b"\x10\x04"
    ),
    "an odd half byte that is not zero": nibbles(b"0a1", lengths=packed(1, 1, 1, 0), codes=b"\x10\x12"),
    "a byte twice": nibbles(alphabet=b"01aa", codes=b"\x10\x32"),
    "bytes that do not ascend": nibbles(alphabet=b"10af", codes=b"\x10\x32"),
    "bytes after the zeros": nibbles(alphabet=b"01af\0\0b", codes=b"\x10\x32"),
    "a zero that is not the first": nibbles(alphabet=b"0\x001af", codes=b"\x10\x32"),
    "more bytes than codes": nibbles(size=32, lengths=constant(8)),
    "fewer bytes than codes": nibbles(size=2, lengths=packed(1, 1, 0, 0), codes=bytes(16)),
    "fewer than no bytes": nibbles(b"", size=-1, lengths=constant(0)),
    "very few bytes": nibbles(b"", size=-(2**63), lengths=constant(0)),
    "more bytes than there can be": nibbles(size=2**63 - 1),
    "lengths of more bytes": nibbles(lengths=packed(1, 1, 1, 2)),
    "lengths of fewer bytes": nibbles(lengths=packed(1, 1, 1, 0)),
    "no alphabet": replace(nibbles(), buffers=(b"\x10\x32",)),
    "no lengths": replace(nibbles(), children=()),
    "a width": replace(nibbles(), width=4),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_half_bytes_that_contradict_themselves_are_refused(name: str) -> None:
    root = REFUSED[name]
    for dtype in TYPES:
        with pytest.raises((ValueError, AssertionError, IndexError)):
            by_specification(root, dtype)
        with refuses(ValueError):
            decode_array(pack_nodes(root), join_buffers(root), dtype, 4)


def test_an_alphabet_beyond_ascii_is_refused_for_strings() -> None:
    root = nibbles(b"0a1\xc3", b"01a\xc3")
    assert decoded(root, pa.binary()).to_pylist() == [b"0", b"a", b"1", b"\xc3"]
    for dtype in (pa.string(), pa.large_string()):
        with pytest.raises(AssertionError):
            by_specification(root, dtype)
        with refuses(ValueError):
            decoded(root, dtype)


@pytest.mark.parametrize("dtype", [pa.int64(), pa.bool_(), pa.binary(4), pa.list_(pa.string())])
def test_half_bytes_are_for_strings_and_binaries(dtype: pa.DataType) -> None:
    with refuses(ValueError):
        decode_array(pack_nodes(nibbles()), join_buffers(nibbles()), dtype, 4)


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
    decode_array(encoded.meta, encoded.raw, pa.string(), 4000, most_bytes=need)
    with refuses(ValueError):
        decode_array(encoded.meta, encoded.raw, pa.string(), 4000, most_bytes=need - 1)


def test_plans_count_the_text_and_not_its_half_bytes() -> None:
    array = pa.array(ids(4000))
    stats = make_chunk(array, level=1).stats(offset=0, stored_bytes=1)
    assert stats.raw_bytes == 4000 * 16 + 16
    assert stats.decoded_bytes == stats.held_bytes == stats.value_bytes == 4000 * 36
    summary = FragmentSummary()
    summary.add_column("v", [stats], [4000])
    assert (summary.peak_row_bytes, summary.columns["v"].raw) == (36, 4000 * 36)
