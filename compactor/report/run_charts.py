"""Draws the time by stage and the memory of compactions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from compactor.common.counts import counted
from compactor.report.chart import ALERT, LEVEL_COLORS, TOP_PIXELS, Chart, lay_out, plain
from compactor.report.data import CompactionRow
from compactor.resources.stopwatch import STAGES

MAX_RUNS: Final = 20
"""Maximum compactions drawn, newest first."""
_STAGE_COLORS: Final = (
    "#8c8fa6", "#2f8fd8", "#8250df", "#d4508f", "#a98f12", "#e8833a", "#14998a", "#5b6ee1",
)  # fmt: skip
_OTHER_COLOR: Final = "#b9bac6"
_MIB: Final = 1 << 20


def _drawn_runs(runs: Sequence[CompactionRow]) -> list[CompactionRow]:
    return [run for run in runs if not run.figures["failure"]][:MAX_RUNS]


def _run_labels(runs: Sequence[CompactionRow]) -> list[str]:
    return [plain(f"v{run.version} · {run.figures['compaction_id'][:6]}") for run in runs]


def stages_chart(runs: Sequence[CompactionRow]) -> Chart | None:
    from plotly import graph_objects

    drawn = _drawn_runs(runs)
    if not drawn:
        return None
    stages = [*STAGES, *sorted(_other_stages(drawn))]
    figure = graph_objects.Figure()
    for number, stage in enumerate([*stages, "other"]):
        seconds = [_stage_seconds(run, stage) for run in drawn]
        if any(seconds):
            figure.add_trace(
                graph_objects.Bar(
                    orientation="h",
                    y=_run_labels(drawn),
                    x=np.array(seconds, float),
                    name=plain(stage),
                    marker={
                        "color": _OTHER_COLOR if stage == "other" else _STAGE_COLORS[number % 8],
                        "line": {"width": 0},
                    },
                    hovertemplate=f"{plain(stage)} %{{x:.3f}} s<extra>%{{y}}</extra>",
                )
            )
    figure.update_yaxes(
        autorange="reversed", type="category", automargin=True, fixedrange=True, ticklabelstandoff=6
    )
    figure.update_xaxes(title="seconds", rangemode="tozero")
    lay_out(figure, _runs_height(drawn), barmode="stack", bargap=0.28, margin={"t": TOP_PIXELS})
    return Chart(
        name="stages",
        title="Time by stage",
        text=f"Time of the merging thread in the last {counted(len(drawn), 'compaction')}, the newest at the "
        "top. Other is the time outside of all stages: planning the merge, opening objects.",
        figure=figure,
    )


def _other_stages(runs: Iterable[CompactionRow]) -> set[str]:
    return {stage for run in runs for stage in run.figures["stage_seconds"]}.difference(STAGES)


def _stage_seconds(run: CompactionRow, stage: str) -> float:
    known: dict[str, float] = run.figures["stage_seconds"]
    if stage != "other":
        return known.get(stage, 0.0)
    return float(max(0.0, round(run.figures["seconds"] - sum(known.values()), 3)))


def memory_chart(runs: Sequence[CompactionRow]) -> Chart | None:
    from plotly import graph_objects

    drawn = _drawn_runs(runs)
    if not drawn:
        return None
    labels = _run_labels(drawn)
    figure = graph_objects.Figure(
        [
            graph_objects.Bar(
                orientation="h", y=labels, x=_mebibytes(drawn, "peak_charged_bytes"), name="charged",
                marker={"color": LEVEL_COLORS[1], "line": {"width": 0}},
                hovertemplate="charged %{x:,.1f} MiB<extra>%{y}</extra>",
            ),
            _marks(drawn, labels, "memory_limit_bytes", "limit", ALERT, "line-ns-open", 14),
            _marks(drawn, labels, "peak_rss_bytes", "resident", LEVEL_COLORS[2], "diamond", 8),
            _marks(drawn, labels, "predicted_memory_bytes", "predicted", LEVEL_COLORS[2], "diamond-open", 8),
        ]
    )  # fmt: skip
    figure.update_yaxes(
        autorange="reversed", type="category", automargin=True, fixedrange=True, ticklabelstandoff=6
    )
    figure.update_xaxes(title="MiB", rangemode="tozero")
    lay_out(figure, _runs_height(drawn), bargap=0.28, margin={"t": TOP_PIXELS})
    return Chart(
        name="memory",
        title="Memory against the limit",
        text="Most memory that a compaction charged to its limit, the largest resident set of its process "
        "meanwhile, which includes the libraries, and what was predicted for that.",
        figure=figure,
    )


def _marks(
    runs: Sequence[CompactionRow],
    labels: Sequence[str],
    field: str,
    name: str,
    color: str,
    symbol: str,
    size: int,
) -> Any:
    from plotly import graph_objects

    return graph_objects.Scatter(
        y=labels, x=_mebibytes(runs, field), name=name, mode="markers",
        marker={"symbol": symbol, "size": size, "color": color, "line": {"width": 2, "color": color}},
        hovertemplate=f"{name} %{{x:,.1f}} MiB<extra>%{{y}}</extra>",
    )  # fmt: skip


def _mebibytes(runs: Sequence[CompactionRow], field: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([run.figures[field] / _MIB for run in runs], float)


def _runs_height(runs: Sequence[CompactionRow]) -> int:
    return max(240, 130 + 22 * len(runs))
