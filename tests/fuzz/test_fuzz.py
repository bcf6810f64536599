"""Searches briefly with fixed seeds; `python -m tests.fuzz` searches long (docs/explanation/fuzzing.md)."""

from __future__ import annotations

import contextlib
import random
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lsm_fragment import limits, open_fragment
from lsm_fragment.container import pages, stream_reader
from lsm_fragment.encodings import coding as decode
from lsm_fragment.encodings.node import Encoding
from lsm_fragment.errors import CorruptFragmentError, FormatError
from lsm_fragment.native.encodings.decode import Cursor
from tests.fuzz import mutations
from tests.fuzz.anatomy import NODE, Anatomy
from tests.fuzz.seeds import Seed, fragments
from tests.fuzz.targets import FindingError, check_damaged, check_forged, inspect, merge, one, table
from tests.golden.build_corpus import CORPUS, FOLDER
from tests.support.arrow_pool import counting_pool
from tests.support.fragments import read_random, read_stream, write_fragment
from tests.support.wording import refuses

SMALL = sorted(fragments(), key=lambda seed: len(seed.data))[:8]
FILES = sorted(FOLDER.glob("*.frag"))
READABLE = ("a_dictionary_of_one_long_text",)
"""As a merge writes it."""


DECIMALS = [
    seed for seed in fragments() if seed.name.startswith(("decimals ", "decimal32", "decimal128"))
]


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The search holds all rows that a forged fragment has."""
    limits.max_chunk_bytes.cache_clear()
    monkeypatch.setenv("COMPACTOR_MAX_CHUNK_BYTES", str(16 << 20))
    yield
    limits.max_chunk_bytes.cache_clear()


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("seed", range(1, 5))
def test_nothing_is_found_in_inputs_of_a_fixed_seed(seed: int) -> None:
    for number in range(800):
        one(seed, number)


@pytest.mark.usefixtures("small_chunks")
@settings(max_examples=300, deadline=None)
@given(st.sampled_from(fragments()), st.randoms(use_true_random=False))
def test_forged_fragments_are_refused_or_read_alike_by_all(seed: Seed, rng: random.Random) -> None:
    check_forged(mutations.forged(rng, seed.data))


def test_made_up_chunks_are_of_every_encoding_and_some_of_text_are_read() -> None:
    rng, made, read = random.Random(1), set(), set()
    for _ in range(3000):
        meta, raw = mutations.made_up_tree(rng, 3, 0)
        made.add(meta[0])
        with contextlib.suppress(ValueError):
            decode.decode_array(meta, raw, pa.string(), 3)
            read.add(meta[0])
    assert made == set(Encoding)
    assert read >= {Encoding.VARLEN, Encoding.LETTERS, Encoding.VOCABULARY}


def test_lying_nodes_are_of_every_encoding() -> None:
    rng = random.Random(1)
    data = next(seed.data for seed in fragments() if seed.name == "vocabulary")
    block = next(block for block in Anatomy.of(data).blocks if block.kind == ord("D"))
    lies = [mutations.lying_node(rng, block).meta for _ in range(2000)]
    assert {node[0] for meta in lies for node in NODE.iter_unpack(meta)} == set(Encoding)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("target", [merge, inspect, table])
def test_what_reads_fragments_refuses_or_reads_what_is_there(target) -> None:
    for number in range(40):
        target(random.Random(number))


@pytest.mark.parametrize("seed", SMALL, ids=lambda seed: seed.name)
def test_fragments_cut_off_anywhere_or_filled_with_zeros_from_there_are_refused(seed: Seed) -> None:
    for length in range(len(seed.data)):
        check_damaged(seed, seed.data[:length])
        check_damaged(seed, seed.data[:length] + bytes(len(seed.data) - length))


@pytest.mark.parametrize(
    "path", [path for path in FILES if path.stem not in READABLE], ids=lambda path: path.stem
)
def test_what_was_found_once_is_refused_without_much_memory(path: Path) -> None:
    data = path.read_bytes()
    for read in (read_random, read_stream):
        tracemalloc.start()
        try:
            with counting_pool() as pool, refuses(CorruptFragmentError):
                read(data)
            assert tracemalloc.get_traced_memory()[1] < 40 << 20
        finally:
            tracemalloc.stop()
        assert pool.max_memory() < 40 << 20


@pytest.mark.parametrize("name", READABLE)
def test_what_stands_for_much_is_read_as_few_rows_at_a_time_as_there_is_room_for(name: str) -> None:
    [path] = [path for path in FILES if path.stem == name]
    reader, rows = open_fragment(path), 0
    with counting_pool() as pool:
        for batch in reader.scan():
            rows += batch.num_rows
            assert pc.all(pc.equal(batch.column("v"), "a" * 10_000)).as_py()
            del batch
    assert rows == reader.footer.rows
    assert pool.max_memory() < 200 << 20


def test_the_corpus_is_what_its_builder_makes() -> None:
    assert sorted(CORPUS) == [path.stem for path in FILES]


def test_a_fragment_is_put_together_as_it_was_taken_apart() -> None:
    for seed in fragments():
        if "golden" not in seed.name:
            assert Anatomy.of(seed.data).to_bytes() == seed.data


@pytest.mark.parametrize("seed", DECIMALS, ids=lambda seed: seed.name)
def test_decimals_of_more_digits_than_their_type_are_refused(seed: Seed) -> None:
    for number in range(20):
        anatomy = Anatomy.of(seed.data)
        mutations.narrow_decimals(random.Random(number), anatomy)
        data = anatomy.to_bytes()
        for read in (read_random, read_stream):
            with pytest.raises(FormatError):
                read(data)


class UncountedNulls(Cursor):
    def validity(self):
        return self.buffer((self.length + 7) // 8) if self.null_count else None


class LooseEnds(Cursor):
    def finish(self):
        pass


BROKEN = {
    "counts of nulls": (decode, "Cursor", UncountedNulls),
    "all of the payload used": (decode, "Cursor", LooseEnds),
    "names of columns": (
        stream_reader.FragmentStream,
        "_column_name",
        lambda stream, block: block.raw().decode(),
    ),
}


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize(("owner", "name", "broken"), BROKEN.values(), ids=BROKEN.keys())
def test_a_reader_without_one_of_its_checks_is_found_out(owner, name, broken, monkeypatch) -> None:
    monkeypatch.setattr(owner, name, broken)
    with pytest.raises(Exception) as caught:
        for number in range(20_000):
            rng = random.Random(f"broken {number}")
            check_forged(mutations.forged(rng, rng.choice(fragments()).data))
    assert not isinstance(caught.value, FormatError)


@pytest.mark.usefixtures("small_chunks")
def test_readers_that_believe_footers_are_found_out(monkeypatch) -> None:
    data = (FOLDER / "a_footer_of_another_column_s_chunk.frag").read_bytes()
    check_forged(data)
    monkeypatch.setattr(pages.ColumnRecord, "check_places", lambda *arguments: None)
    monkeypatch.setattr(stream_reader.ChunkDigest, "check", lambda *arguments: None)
    with refuses(FindingError):
        check_forged(data)


def test_a_dictionary_column_of_more_values_than_its_index_can_count_comes_in_several_batches() -> (
    None
):
    dtype = pa.dictionary(pa.int8(), pa.string())
    wide = pa.table(
        {"k": range(300), "d": pa.array([f"v{n}" for n in range(300)]).dictionary_encode()}
    )
    data = bytearray(write_fragment(wide, "k"))
    anatomy = Anatomy.of(bytes(data))
    header = anatomy.blocks[0].raw().replace(b'{"kind":"int32"}', b'{"kind":"int8"}')
    anatomy.blocks[0] = anatomy.blocks[0].with_raw(header)
    rows = read_random(anatomy.to_bytes())
    assert rows.schema.field("d").type == dtype
    assert rows["d"].to_pylist() == [f"v{n}" for n in range(300)]
