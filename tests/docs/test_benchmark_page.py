"""The pages and the picture show what benchmarks.csv says; `docs.tools.benchmark_page` writes them anew."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from PIL import Image

from bench.figures import CSV, OUR_LABEL, Figure, read, write
from docs.tools.benchmark_page import (
    PAGES,
    PICTURE,
    SOURCE_KEY,
    digest,
    draw,
    drawn,
    page_with_figures,
)

OURS = Figure(
    topic="merge", workload="logs", case="one core", engine=OUR_LABEL, figure="seconds", value=0.5,
    rows=1_000, version="1", commit="0123abcd", date="2026-11-24", machine="CPU, 2 cores",
)  # fmt: skip
PEER = replace(OURS, engine="Peer", value=0.75, version="9.1")
EMPTY = "<!-- figures: merge | seconds -->\n<!-- end of figures -->\n"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_shows_the_figures_of_the_file(page: Path) -> None:
    text = page.read_text()
    assert "<!-- figures: " in text
    assert page_with_figures(text, read(CSV)) == text


def test_the_picture_shows_the_figures_of_the_file(tmp_path: Path) -> None:
    shown = drawn(read(CSV))
    assert Image.open(PICTURE).info[SOURCE_KEY] == digest(shown)
    draw(shown, tmp_path / "again.png")
    assert Image.open(tmp_path / "again.png").info[SOURCE_KEY] == digest(shown)


def test_a_table_has_the_ratio_of_each_peer_and_where_it_was_measured() -> None:
    page = page_with_figures(EMPTY, [PEER, OURS])
    assert "| seconds |  | lsm-compactor | Peer |" in page
    assert "| logs | one core | **0.50** | 0.75 (1.50) |" in page
    assert "1,000 rows, commit `0123abcd`, 2026-11-24, CPU, 2 cores; Peer 9.1" in page
    assert page_with_figures(page, [replace(PEER, value=1.0), OURS]) == page.replace(
        "0.75 (1.50)", "1.00 (2.00)"
    )


def test_a_table_may_begin_where_a_peer_does_best() -> None:
    page = EMPTY.replace("seconds", "seconds | smallest ratio first")
    close, far = (replace(OURS, workload=name) for name in ("close", "far"))
    figures = [
        far,
        replace(PEER, workload="far"),
        close,
        replace(PEER, workload="close", value=0.4),
    ]
    shown = page_with_figures(page, figures)
    assert shown.index("| close |") < shown.index("| far |")
    assert page_with_figures(page.replace("first", "first | far"), figures).count("| close |") == 0


def test_a_table_without_figures_is_refused() -> None:
    with pytest.raises(ValueError, match=r"benchmarks\.csv has no figures of merge \| seconds"):
        page_with_figures(EMPTY, [])


def test_figures_come_back_from_their_file(tmp_path: Path) -> None:
    write(tmp_path / "f.csv", [OURS, PEER])
    assert read(tmp_path / "f.csv") == [OURS, PEER]
