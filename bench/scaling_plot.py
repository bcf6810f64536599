"""Draws the figures of `bench.bench_scaling`: seconds by rows, fan-in and columns; the ideal is dashed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PANELS: Final = (
    ("rows", ("rows",)),
    ("inputs", ("fan-in",)),
    ("columns", ("columns", "sparse")),
)
_ORDER: Final = "order"


def plot(results: Sequence[dict[str, Any]], path: Path) -> None:
    """Draws three panels on log axes; one whose cases were not run stays empty."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12.0, 3.6), dpi=100, layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(1, len(_PANELS), squeeze=False)[0]
    for axes, (label, groups) in zip(panels, _PANELS, strict=True):
        axes.set_xlabel(label)
        for group in groups:
            cases = [case for case in results if case["group"] == group]
            if cases:
                _draw(axes, group, cases)
        if axes.lines:
            axes.set_xscale("log")
            axes.set_yscale("log")
            axes.legend(fontsize=7)
        axes.grid(visible=True, which="both", alpha=0.2)
    panels[0].set_ylabel("seconds")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def _draw(axes: Axes, group: str, cases: Sequence[dict[str, Any]]) -> None:
    sizes = [case["size"] for case in cases]
    seconds = [case["seconds"] for case in cases]
    order = [case["stage_seconds"].get(_ORDER) for case in cases]
    if group in ("rows", "columns"):
        name = "all inputs have all columns" if group == "columns" else "compaction"
        _line(axes, sizes, seconds, name, lambda size: size / sizes[0])
    elif group == "fan-in" and all(order):
        rest = [whole - part for whole, part in zip(seconds, order, strict=True)]
        _line(axes, sizes, rest, "all but the ordering", lambda _: 1.0)
        _line(axes, sizes, order, "ordering", lambda size: math.log(size) / math.log(sizes[0]))
    else:
        name = "inputs have 100 columns each" if group == "sparse" else "compaction"
        _line(axes, sizes, seconds, name, lambda _: 1.0)


def _line(
    axes: Axes,
    sizes: Sequence[int],
    seconds: Sequence[float],
    name: str,
    ideal: Callable[[int], float],
) -> None:
    (drawn,) = axes.plot(sizes, seconds, marker="o", markersize=3, label=name)
    axes.plot(
        sizes,
        [seconds[0] * ideal(size) for size in sizes],
        linestyle="--",
        linewidth=0.8,
        color=drawn.get_color(),
        label=f"{name}, ideal",
    )
