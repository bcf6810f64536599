"""Draws results: seconds on one core, a panel for each workload, and the codec floor as a line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

from bench.peers.contract import Measure
from bench.peers.engines import FLOOR, OURS
from bench.peers.measurements import Result, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_DPI: Final = 150
_WIDTH: Final = 9.6
_BAR_HEIGHT: Final = 0.34
_MARGIN: Final = 1.15
_OURS_COLOR: Final = "#1f6fb4"
_PEER_COLOR: Final = "#b9c2cb"
_FLOOR_COLOR: Final = "#c0392b"


def draw(result: Result, path: Path) -> None:
    """Draws horizontal bars, the fastest on top. Raises `ValueError` if nothing was run on one core."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = [
        workload
        for workload, measure, cores in result.sections()
        if cores == 1 and measure == Measure.MERGE
    ]
    if not panels:
        raise ValueError("the plot shows merges on one core, and there are none")
    summaries = {workload: _good(result, workload) for workload in panels}
    bars = max(len(found) for found in summaries.values())
    figure = Figure(figsize=(_WIDTH, bars * _BAR_HEIGHT + _MARGIN), dpi=_DPI, layout="constrained")
    FigureCanvasAgg(figure)
    for axes, (workload, found) in zip(
        figure.subplots(1, len(panels), squeeze=False)[0], summaries.items(), strict=True
    ):
        _panel(axes, result, found)
        axes.set_title(f"{workload} keys", fontsize=10, loc="left")
    rows = " or ".join(sorted({f"{result.workloads[name].rows:,}" for name in panels}))
    figure.suptitle(
        f"Compaction of sorted inputs, {rows} log rows in all, on one core: seconds",
        fontsize=11,
        x=0.01,
        ha="left",
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _good(result: Result, workload: str) -> list[Summary]:
    return [
        summary for summary in result.summaries((workload, Measure.MERGE, 1)) if not summary.failure
    ]


def _panel(axes: Axes, result: Result, summaries: list[Summary]) -> None:
    bars = sorted((s for s in summaries if s.engine != FLOOR), key=lambda s: -s.wall_seconds)
    seconds = [summary.wall_seconds for summary in bars]
    colors = [_OURS_COLOR if summary.engine == OURS else _PEER_COLOR for summary in bars]
    drawn = axes.barh([result.facts(s).label for s in bars], seconds, 0.72, color=colors)
    axes.bar_label(drawn, [f"{value:.1f}" for value in seconds], padding=3, fontsize=8)
    for summary in (s for s in summaries if s.engine == FLOOR):
        axes.axvline(summary.wall_seconds, color=_FLOOR_COLOR, linewidth=1.2, linestyle="--")
        axes.annotate(
            f"codec floor {summary.wall_seconds:.1f}",
            (summary.wall_seconds, 0),
            xycoords=("data", "axes fraction"),
            xytext=(3, -9),
            textcoords="offset points",
            color=_FLOOR_COLOR,
            fontsize=8,
        )
    axes.set_xlim(0, max(seconds, default=1) * 1.12)
    axes.tick_params(axis="y", labelsize=8.5, length=0)
    axes.xaxis.set_visible(False)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
