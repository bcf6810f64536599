"""Draws lines over time or versions, as chosen on the page."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from compactor.report.chart import LEVEL_COLORS, Chart, lay_out
from compactor.report.data import HistoryPoint
from compactor.report.text import when_text

_DASHES: Final = ("solid", "dash", "dot")
"""By line, so that equal ones can be told apart."""
_PLACES: Final = 400
"""Positions on the time axis that the eye can resolve."""


def reads_chart(points: Sequence[HistoryPoint]) -> Chart | None:
    return _over_time(
        "reads",
        "Read amplification",
        "Sorted runs that a read of all keys merges, and fragments that a read of one key looks at: at the "
        "worst key, and for the key of a random row.",
        points,
        [
            ("all keys", LEVEL_COLORS[1], lambda p: p.sorted_runs, ",d"),
            ("one key, worst", LEVEL_COLORS[0], lambda p: p.worst_point_runs, ",d"),
            ("one key, mean", LEVEL_COLORS[3], lambda p: p.mean_point_runs, ",.2f"),
        ],
    )


def ingested_charts(points: Sequence[HistoryPoint]) -> tuple[Chart | None, Chart | None]:
    """Returns the charts of rows and of bytes."""
    rows = _over_time(
        "ingested-rows",
        "Rows ingested",
        "Rows ingested over the table's life up to then. Where the line is steeper, more came in.",
        points,
        [("rows", LEVEL_COLORS[3], lambda p: p.ingested_rows, ",d")],
    )
    size = _over_time(
        "ingested-bytes",
        "Bytes ingested",
        "Bytes of the fragments that ingests wrote, up to then.",
        points,
        [("bytes", LEVEL_COLORS[4], lambda p: p.ingested_bytes, ".3s")],
    )
    return rows, size


def writes_chart(points: Sequence[HistoryPoint]) -> Chart | None:
    return _over_time(
        "writes",
        "Write amplification",
        "Bytes written for each byte ingested, over the table's life up to then: 1 without any compaction.",
        points,
        [("so far", LEVEL_COLORS[1], lambda p: p.write_amplification, ",.2f")],
    )


def storage_chart(points: Sequence[HistoryPoint]) -> Chart | None:
    return _over_time(
        "storage",
        "Live fragments",
        "Fragments that readers see, without those that a vacuum has yet to remove.",
        points,
        [("fragments", LEVEL_COLORS[2], lambda p: p.fragments, ",d")],
    )


_Line = tuple[str, str, Callable[[HistoryPoint], float], str]
"""Name, colour, value and format of a line."""


def _over_time(
    name: str, title: str, text: str, points: Sequence[HistoryPoint], lines: Sequence[_Line]
) -> Chart | None:
    from plotly import graph_objects

    if len(points) < 2:
        return None
    times = np.array([p.committed_unix_ms for p in points], np.int64)
    figure = graph_objects.Figure()
    for place, (label, color, value, format_) in enumerate(lines):
        figure.add_trace(
            graph_objects.Scatter(
                x=times,
                y=np.array([value(p) for p in points], float),
                name=label,
                mode="lines+markers" if len(points) <= 60 else "lines",
                line={
                    "shape": "hv",
                    "width": 2 if place else _first_width(lines),
                    "color": color,
                    "dash": _DASHES[place],
                },
                marker={"size": 5},
                customdata=[
                    [f"{p.version:,}", p.operation, when_text(p.committed_unix_ms)] for p in points
                ],
                hovertemplate=f"{label} %{{y:{format_}}}<br>version %{{customdata[0]}} (%{{customdata[1]}})"
                "<br>%{customdata[2]}<extra></extra>",
            )
        )
    top = 40 if len(lines) > 1 else 12
    lay_out(
        figure,
        262 + top,
        hovermode="closest",
        showlegend=len(lines) > 1,
        margin={"t": top, "b": 66},
    )
    figure.update_xaxes(type="date", tickangle=0, title="committed (UTC)", ticklabelstandoff=5)
    highest = max(value(p) for p in points for *_, value, _ in lines)
    figure.update_yaxes(rangemode="tozero", separatethousands=True)
    if all(format_ == ",d" for *_, format_ in lines) and highest <= 5:
        figure.update_yaxes(dtick=1)
    figure.update_layout(
        meta={
            "versions": [p.version for p in points],
            "axis": "version" if _is_crowded(times) else "clock",
        }
    )
    return Chart(name=name, title=title, text=text, figure=figure, has_axes=True)


def _first_width(lines: Sequence[Any]) -> int:
    """Returns the width of the first line: thick if others may cover it."""
    return 5 if len(lines) > 1 else 2


def _is_crowded(times: npt.NDArray[np.int64]) -> bool:
    """Returns whether most points would coincide on a time axis, because commits come in bursts."""
    span = max(1, int(times[-1] - times[0]))
    places = (times - times[0]) * _PLACES // span
    return len(np.unique(places)) * 2 <= len(times)
