"""What errors say is held to the files of `tests/wording`, apart from what varies and what others say."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

import pyarrow as pa
import pytest

from tests.support import wording
from tests.support.wording import ROOT

NAME = "tests/cli/test_x.py::test_y[1]"


def heard(*texts: str, writes: bool = True) -> list[str]:
    """Returns what a test hears that says `texts`."""
    test = wording._Test(NAME, Path("/base"), writes)
    for text in texts:
        test.says(text)
    return test.heard


@pytest.fixture
def known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Messages `a`, `b` and `c` of the test `NAME`."""
    monkeypatch.setattr(wording, "ROOT", tmp_path)
    monkeypatch.setattr(wording, "FOLDER", tmp_path)
    monkeypatch.setattr(wording, "_read", wording._read.__wrapped__)
    wording._write("command line", {NAME: ["a", "b", "c"]})


@pytest.mark.usefixtures("known")
def test_messages_come_in_the_order_of_the_file_and_may_be_left_out() -> None:
    assert heard("a", "b", "c", writes=False) == ["a", "b", "c"]
    assert heard("a", "a", "c", writes=False) == ["a", "c"]
    for texts in (("b", "a"), ("a", "d"), ("c", "c", "b")):
        with pytest.raises(pytest.fail.Exception, match=r"make wording TESTS=tests/cli/test_x\.py"):
            heard(*texts, writes=False)


@pytest.mark.usefixtures("known")
def test_what_is_written_is_read_again() -> None:
    tests = {
        "tests/cli/test_x.py::test_a": ["one", "two"],
        "tests/cli/test_x.py::test_b[  ]": ["one"],
        "tests/cli/test_x.py::test_b[/ - ::]": ["one"],
        "tests/cli/test_z.py::test_a": ["one"],
    }
    wording._write("command line", tests | {"tests/cli/test_x.py::test_silent": []})
    assert wording._read("command line") == tests


def test_what_varies_is_not_written() -> None:
    now = dt.datetime.now(dt.UTC).isoformat()
    assert heard(f"/base/test_y0/a.csv: no ({now})") == ["<tmp>/a.csv: no (<now>)"]
    assert heard(f"s3://bucket-17/a at http://127.0.0.1:4711, {'0f' * 16}") == [
        "s3://<bucket>/a at http://<server>, <id>"
    ]
    assert heard("two\nlines\x1b\n") == ["two\\nlines\\x1b"]


def test_words_of_others_are_told_from_ours() -> None:
    for value, shown in (("x", "column 'a': <ArrowInvalid>"), (-1, "column 'a': is below zero")):
        try:
            try:
                if pa.array([value]).cast(pa.int64())[0].as_py() < 0:
                    raise ValueError("is below zero")
            except ValueError as error:
                raise ValueError(f"column 'a': {error}") from error
        except ValueError as error:
            assert wording._without_words_of_others(error) == shown


@pytest.mark.parametrize("front", wording._fronts())
def test_every_message_is_of_a_test_that_exists(front: str) -> None:
    for name in wording._read(front):
        file, test = name.partition("[")[0].split("::", 1)
        assert f"def {test.split('::')[-1]}(" in (ROOT / file).read_text(), name
