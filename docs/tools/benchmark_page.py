"""Writes tables of figures into pages, and draws the picture, from docs/explanation/benchmarks.csv.

    python -m docs.tools.benchmark_page

A table stands between `<!-- figures: TOPIC | FIGURE -->` and `<!-- end of figures -->`; a third part, ` |
WORKLOAD;...`, chooses workloads, and ` | smallest ratio first` orders the rows. A row is a workload and a
case, a column an engine. The number in parentheses is the engine's figure divided by that of lsm-compactor.
"""

from __future__ import annotations

import hashlib
import math
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from bench.figures import CSV, OUR_LABEL, Figure, read

ROOT: Final = Path(__file__).parents[2]
PAGES: Final = (ROOT / "README.md", ROOT / "docs/explanation/benchmarks.md")
PICTURE: Final = ROOT / "docs/img/benchmarks.png"
SOURCE_KEY: Final = "Figures"
"""The key of the picture's metadata under which the digest of its figures stands."""
_TABLE: Final = re.compile(
    r"(<!-- figures: (?P<words>[^>]+?) -->\n).*?(<!-- end of figures -->)", re.DOTALL
)
_PANELS: Final = 4
_BY_RATIO: Final = "smallest ratio first"
_OUR_COLOR: Final = "#1f6fb4"
_PEER_COLOR: Final = "#b9c2cb"


def page_with_figures(text: str, figures: Sequence[Figure]) -> str:
    """Returns a page with its tables made anew. Raises `ValueError` if a table finds no figures."""

    def table(found: re.Match[str]) -> str:
        topic, figure, *more = (word.strip() for word in found["words"].split("|"))
        by_ratio = _BY_RATIO in more
        workloads = next((names.split(";") for names in more if names != _BY_RATIO), None)
        chosen = [
            each
            for each in figures
            if (each.topic, each.figure) == (topic, figure)
            and (workloads is None or each.workload in workloads)
        ]
        if not chosen:
            raise ValueError(f"{CSV.name} has no figures of {found['words']}")
        return f"{found[1]}\n{as_table(chosen, by_ratio=by_ratio)}\n\n{_where(chosen)}\n{found[3]}"

    return _TABLE.sub(table, text)


def as_table(figures: Sequence[Figure], *, by_ratio: bool = False) -> str:
    """Returns a Markdown table of one kind of figures.

    by_ratio: begins with the rows where a peer does best.
    """
    engines = _in_order(figures)
    lines: dict[tuple[str, str], dict[str, float]] = {}
    for each in figures:
        lines.setdefault((each.workload, each.case), {})[each.engine] = each.value
    if by_ratio:
        lines = dict(sorted(lines.items(), key=lambda line: _smallest_ratio(line[1])))
    has_cases = any(case for _, case in lines)
    head = [figures[0].figure, *([""] if has_cases else []), *engines]
    rows = [
        [workload, *([case] if has_cases else []), *(_cell(values, engine) for engine in engines)]
        for (workload, case), values in lines.items()
    ]
    ruler = ["---"] * (1 + has_cases) + ["--:"] * len(engines)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in (head, ruler, *rows))


def _smallest_ratio(values: Mapping[str, float]) -> float:
    ours = values[OUR_LABEL]
    return min((v / ours for engine, v in values.items() if engine != OUR_LABEL), default=math.inf)


def _in_order(figures: Sequence[Figure]) -> list[str]:
    engines = dict.fromkeys(each.engine for each in figures)
    return sorted(engines, key=lambda engine: engine != OUR_LABEL)


def _cell(values: dict[str, float], engine: str) -> str:
    if engine not in values:
        return ""
    ours, value = values.get(OUR_LABEL), values[engine]
    if engine == OUR_LABEL:
        return f"**{_number(value)}**"
    return _number(value) + (f" ({value / ours:.2f})" if ours else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _where(figures: Sequence[Figure]) -> str:
    """Returns the line below a table: rows, commit, date, machine, versions."""
    runs = {(each.rows, each.commit, each.date, each.machine): None for each in figures}
    versions = {
        f"{each.engine} {each.version}": None
        for each in figures
        if each.version and each.engine != OUR_LABEL
    }
    whence = "; ".join(
        f"{rows:,} rows, commit `{commit}`, {date}, {machine}"
        for rows, commit, date, machine in runs
    )
    return f"<sub>{whence}{'; ' if versions else ''}{', '.join(versions)}</sub>"


def drawn(figures: Sequence[Figure]) -> list[Figure]:
    """Returns what the picture shows: merges of the hardest workloads on one core."""
    merges = [
        each
        for each in figures
        if (each.topic, each.figure, each.case) == ("merge", "seconds", "one core")
    ]
    shown = list(dict.fromkeys(each.workload for each in merges))[:_PANELS]
    return [each for each in merges if each.workload in shown]


def digest(figures: Sequence[Figure]) -> str:
    return hashlib.sha256(repr(list(figures)).encode()).hexdigest()


def draw(figures: Sequence[Figure], path: Path) -> None:
    """Draws a panel for each workload, the seconds of each engine as bars."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    engines = _in_order(figures)[::-1]
    workloads = list(dict.fromkeys(each.workload for each in figures))
    size = (2.4 * len(workloads) + 1.2, 0.34 * len(engines) + 0.9)
    canvas = Canvas(figsize=size, dpi=110, layout="constrained")
    FigureCanvasAgg(canvas)
    panels = canvas.subplots(1, len(workloads), squeeze=False, sharey=True)[0]
    for axes, workload in zip(panels, workloads, strict=True):
        found = {each.engine: each.value for each in figures if each.workload == workload}
        colors = [_OUR_COLOR if engine == OUR_LABEL else _PEER_COLOR for engine in engines]
        bars = axes.barh(engines, [found.get(e, 0.0) for e in engines], 0.72, color=colors)
        axes.bar_label(bars, [_number(found[e]) if e in found else "" for e in engines], padding=3)
        axes.set_xlim(0, max(found.values()) * 1.3)
        axes.set_title(workload, fontsize=10, loc="left")
        axes.xaxis.set_visible(False)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
    canvas.suptitle("Seconds of a merge on one core", fontsize=11, x=0.01, ha="left")
    canvas.savefig(path, metadata={SOURCE_KEY: digest(figures)})


def main() -> int:
    figures = read(CSV)
    for page in PAGES:
        page.write_text(page_with_figures(page.read_text(), figures))
        print(page.relative_to(ROOT))
    draw(drawn(figures), PICTURE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
