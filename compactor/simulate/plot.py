"""Plots simulations. Only this module imports matplotlib, an optional dependency."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from compactor.errors import UsageError
from compactor.files.whole import write_whole
from compactor.resources.packages import Extra, required
from compactor.simulate.result import Result, ShardSample, worker_use, write_amplification

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SUFFIXES: Final = (".png", ".svg", ".pdf")
_PIXELS_PER_INCH: Final = 100
_WIDTH: Final = 12.0
_ROW_HEIGHT: Final = 1.55
_DAY_SECONDS: Final = 86_400
_MAX_TIMES_THE_BEST: Final = 4
_WINDOW: Final = 12
"""Compute rates over this many samples."""

_Draw = Callable[["Axes", Result], None]


def check_plot(path: str) -> None:
    """Raises `UsageError` if plots are impossible. Called before anything is simulated."""
    if Path(path).suffix.lower() not in SUFFIXES:
        raise UsageError(f"--plot {path}: end the name in one of {', '.join(SUFFIXES)}")
    if not Path(os.path.realpath(path)).parent.is_dir():
        raise UsageError(f"--plot {path}: its folder does not exist: create it first")
    with required(Extra.PLOT, "--plot"):
        import matplotlib  # noqa: F401


def plot(results: Mapping[str, Result], title: str, path: str) -> None:
    """Writes a plot with a column per strategy and a row per figure, on a common scale per row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import EngFormatter

    rows: list[tuple[str, _Draw]] = [
        ("fragments", _line(lambda sample, shards: sample.fragments * shards)),
        ("runs at level 0\n(one shard)", _line(lambda sample, _: sample.debt.level0_runs)),
        ("stored", _levels),
        ("write\namplification", _write_amplification),
        ("reads,\nsorted runs", _line(lambda sample, _: sample.read_amplification)),
        ("debt score\n(1: writers stop)", _debt),
        ("workers\nbusy, %", _worker_use),
    ]
    figure = Figure(
        figsize=(_WIDTH, _ROW_HEIGHT * len(rows) + 1.0), dpi=_PIXELS_PER_INCH, layout="constrained"
    )
    FigureCanvasAgg(figure)
    grid = figure.subplots(len(rows), len(results), sharex="all", sharey="row", squeeze=False)
    for row, (label, draw) in enumerate(rows):
        for column, (name, result) in enumerate(results.items()):
            axes = grid[row][column]
            draw(axes, result)
            axes.grid(visible=True, alpha=0.3)
            axes.margins(x=0)
            if row == 0:
                axes.set_title(name + (" (given up)" if result.gave_up else ""), fontsize=11)
            if row == len(rows) - 1:
                axes.set_xlabel("days")
        grid[row][0].set_ylabel(label, fontsize=9)
        grid[row][0].set_ylim(0, _top(grid[row]))
        if label in ("fragments", "stored"):
            unit = "B" if label == "stored" else ""
            grid[row][0].yaxis.set_major_formatter(EngFormatter(unit, sep=" " if unit else ""))
    figure.suptitle(title, fontsize=11)
    figure.align_ylabels()
    picture = BytesIO()
    figure.savefig(picture, format=Path(path).suffix[1:].lower())
    write_whole(path, picture.getvalue())


def _top(row: Sequence[Axes]) -> float:
    """Returns the top of a row's scale, cutting off far worse strategies to keep the best legible."""
    tops = [float(axes.dataLim.y1) for axes in row]
    return min(max(tops), _MAX_TIMES_THE_BEST * min(tops)) * 1.05 or 1.0


def _days(result: Result) -> list[float]:
    return [sample.seconds / _DAY_SECONDS for sample in result.samples]


def _line(value: Callable[[ShardSample, int], float]) -> _Draw:
    def draw(axes: Axes, result: Result) -> None:
        axes.plot(_days(result), [value(s, result.shards) for s in result.samples], linewidth=0.9)

    return draw


def _levels(axes: Axes, result: Result) -> None:
    levels = sorted({level for sample in result.samples for level in sample.level_bytes})
    stacked = [
        [s.level_bytes.get(level, 0) * result.shards for s in result.samples] for level in levels
    ]
    labels = [f"level {level}" for level in levels]
    axes.stackplot(_days(result), stacked, labels=labels)
    _legend(axes)


def _write_amplification(axes: Axes, result: Result) -> None:
    axes.plot(
        _days(result)[1:], [s.write_amplification for s in result.samples[1:]], label="so far"
    )
    rates = _rates(result, write_amplification)
    axes.plot(*rates, linewidth=0.7, alpha=0.7, label="lately")
    _legend(axes)


def _debt(axes: Axes, result: Result) -> None:
    axes.plot(_days(result), [s.debt.score for s in result.samples], linewidth=0.9)
    axes.axhline(1.0, color="tab:red", linewidth=0.8, linestyle="--")
    axes.update_datalim([(0.0, 1.0)])


def _worker_use(axes: Axes, result: Result) -> None:
    axes.plot(*_rates(result, lambda a, b: 100 * worker_use(a, b, result.workers)), linewidth=0.9)


def _rates(
    result: Result, rate: Callable[[ShardSample, ShardSample], float]
) -> tuple[list[float], list[float]]:
    """Returns days, and the rate over the `_WINDOW` samples before each."""
    pairs = list(zip(result.samples, result.samples[_WINDOW:], strict=False))
    return [b.seconds / _DAY_SECONDS for _, b in pairs], [rate(a, b) for a, b in pairs]


def _legend(axes: Any) -> None:
    axes.legend(fontsize=7, ncols=2, loc="upper left", framealpha=0.6)
