"""Lines over time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from compactor.report.chart import LEVEL_COLORS, Chart, lay_out
from compactor.report.data import HistoryPoint


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


def writes_chart(points: Sequence[HistoryPoint]) -> Chart | None:
    return _over_time(
        "writes",
        "Write amplification",
        "Bytes written for a byte ingested, over all the table's life up to then: 1 without any compaction.",
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
"""Name, colour, value, format."""


def _over_time(
    name: str, title: str, text: str, points: Sequence[HistoryPoint], lines: Sequence[_Line]
) -> Chart | None:
    from plotly import graph_objects

    if len(points) < 2:
        return None
    times = np.array([p.committed_unix_ms for p in points], np.int64)
    figure = graph_objects.Figure()
    for label, color, value, format_ in lines:
        figure.add_trace(
            graph_objects.Scatter(
                x=times,
                y=np.array([value(p) for p in points], float),
                name=label,
                mode="lines+markers" if len(points) <= 60 else "lines",
                line={"shape": "hv", "width": 2, "color": color},
                marker={"size": 5},
                customdata=[[p.version, p.operation] for p in points],
                hovertemplate=f"{label} %{{y:{format_}}}, version %{{customdata[0]}} (%{{customdata[1]}})"
                "<extra></extra>",
            )
        )
    top = 40 if len(lines) > 1 else 12
    lay_out(figure, 240 + top, hovermode="closest", showlegend=len(lines) > 1, margin={"t": top})
    figure.update_xaxes(type="date", nticks=6, tickangle=0)
    figure.update_yaxes(rangemode="tozero")
    return Chart(name, title, text, figure)
