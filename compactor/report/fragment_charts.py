"""Draws fragments as intervals of the key axis, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from compactor.common.counts import counted
from compactor.report.chart import (
    ALERT,
    TOP_PIXELS,
    Chart,
    lay_out,
    level_color,
    plain,
    subplots,
    titles_at_left,
)
from compactor.report.data import Bar, KeySpace, Panel
from compactor.report.text import bytes_text, when_text

_LANE_PIXELS: Final = 15
_TITLE_PIXELS: Final = 46
_MAX_GAPPED: Final = 200
"""Draw gaps between neighbouring bars only up to this many: beyond, the gaps would hide the bars."""
_TICK_PIXELS: Final = 118
"""Minimum distance of key labels; the page drops labels that do not fit."""
_LEVEL_GAP: Final = 0.7
_HOVER_CHARACTERS: Final = 80
_MIN_BINS: Final = 4
"""Minimum number of size classes, so that bars do not get too wide."""


def fragments_chart(space: KeySpace, windows: int | None = None) -> Chart | None:
    """Returns the chart; None without bars. windows: number of the fragments' time windows."""
    panels = [p for p in (space.before, space.now) if p is not None]
    if not any(p.bars for p in panels):
        return None
    heights = [max(3.0, _height(p)) for p in panels]
    figure = subplots(
        rows=len(panels),
        cols=1,
        shared_xaxes=True,
        row_heights=heights,
        vertical_spacing=_TITLE_PIXELS / (sum(heights) * _LANE_PIXELS + _TITLE_PIXELS),
        subplot_titles=[
            plain(f"{name}: {_panel_title(p)}")
            for name, p in zip(("Before", "Now")[-len(panels) :], panels, strict=True)
        ],
    )
    levels = sorted({bar.level for p in panels for bar in p.bars})
    named: set[str] = set()

    def add(row: int, name: str, color: str, bars: Sequence[Bar]) -> None:
        if bars:
            trace = _bars(bars, _offsets(panels[row - 1]), name, color)
            figure.add_trace(trace.update(showlegend=name not in named), row=row, col=1)
            named.add(name)

    for row, p in enumerate(panels, 1):
        for level in levels:
            bars = [bar for bar in p.bars if bar.level == level and not bar.is_quarantined]
            add(row, f"level {level}", level_color(level), bars)
        add(row, "in quarantine", ALERT, [bar for bar in p.bars if bar.is_quarantined])
        offsets = _offsets(p)
        middles = {row.level: offsets[row.level] + (row.lanes - 1) / 2 for row in p.levels}
        figure.update_yaxes(
            row=row, col=1, range=[_height(p) - 0.3, -0.9], showgrid=False, zeroline=False,
            tickvals=list(middles.values()), ticktext=[f"L{level}" for level in middles],
            fixedrange=True,
        )  # fmt: skip
    figure.update_xaxes(
        tickvals=[tick.rank + 0.5 for tick in space.ticks],
        ticktext=["<br>".join(map(plain, tick.parts)) for tick in space.ticks],
        range=[-0.01 * space.ranks, 1.01 * space.ranks],
        zeroline=False,
        showticklabels=False,
        tickangle=0,
        ticklabeloverflow="allow",
    )
    figure.update_xaxes(row=len(panels), col=1, showticklabels=True)
    titles_at_left(figure)
    labels = 16 * max((len(tick.parts) for tick in space.ticks), default=0)
    gap = _TITLE_PIXELS * (len(panels) - 1)
    height = round(sum(heights) * _LANE_PIXELS + gap + TOP_PIXELS + 16 + labels)
    lay_out(figure, height, barmode="overlay", margin={"t": TOP_PIXELS, "b": 16 + labels})
    figure.update_layout(meta={"tick_pixels": _TICK_PIXELS})
    return Chart(
        name="fragments",
        title="Fragments on the key axis",
        text="Every bar is a fragment, from its first key to its last, in rows so that none hides another. "
        f"The axis is the rank of keys ({', '.join(space.sort)}) among all first and last keys, so distances "
        "have no meaning. "
        f"{_windows(windows)}{_versions(space)}{_drawn_together(panels)} Drag to zoom, double-click to go "
        "back.",
        figure=figure,
        is_wide=True,
    )


def _panel_title(p: Panel) -> str:
    return f"version {p.version:,}, {counted(p.fragments, 'fragment')}"


def _windows(windows: int | None) -> str:
    if windows is None or windows < 2:
        return ""
    return f"Fragments of the {windows:,} time windows lie over one another here, and are never merged. "


def _versions(space: KeySpace) -> str:
    if space.before is None:
        return "There is no earlier version to compare with."
    committed = when_text(space.before.committed_unix_ms)
    return f"Before is version {space.before.version:,}, committed {committed}."


def _drawn_together(panels: Sequence[Panel]) -> str:
    said = [
        f"each row of level {row.level} of version {p.version:,} is where {row.fragments_per_lane:,} more "
        f"of its {row.fragments:,} fragments overlap"
        for p in panels
        for row in p.levels
        if row.fragments_per_lane > 1
    ]
    said += [
        f"{counted(sum(bar.fragments for bar in grouped), 'fragment')} of version {p.version:,} are "
        f"{counted(len(grouped), 'bar')} of neighbours"
        for p in panels
        if (grouped := [bar for bar in p.bars if bar.key and bar.fragments > 1])
    ]
    return f" There are too many to draw each: {', '.join(said)}." if said else ""


def _offsets(p: Panel) -> dict[int, float]:
    """Returns each level's first lane."""
    offsets, place = {}, 0.0
    for row in p.levels:
        offsets[row.level] = place
        place += row.lanes + _LEVEL_GAP
    return offsets


def _height(p: Panel) -> float:
    """Returns the height of a panel in lanes."""
    return sum(row.lanes + _LEVEL_GAP for row in p.levels) - _LEVEL_GAP


def _bars(bars: Sequence[Bar], offsets: dict[int, float], name: str, color: str) -> Any:
    from plotly import graph_objects

    return graph_objects.Bar(
        orientation="h",
        base=np.array([bar.start for bar in bars], np.int64),
        x=np.array([bar.end - bar.start for bar in bars], np.int64),
        y=np.array([offsets[bar.level] + bar.lane for bar in bars]),
        width=0.78,
        marker={"color": color, "line": {"width": 1 if len(bars) <= _MAX_GAPPED else 0}},
        hovertext=[_bar_text(bar) for bar in bars],
        hoverinfo="text",
        name=name,
        legendgroup=name,
        textposition="none",
    )


def _bar_text(bar: Bar) -> str:
    keys = [f"first {plain(bar.first_key)}", f"last  {plain(bar.last_key)}"]
    if not bar.key:
        return "<br>".join(
            [f"<b>level {bar.level}</b>, up to {bar.fragments:,} fragments overlap", *keys]
        )
    name = bar.key if bar.fragments == 1 else f"{bar.fragments:,} neighbours drawn together"
    lines = [
        f"<b>level {bar.level}</b>, {counted(bar.rows, 'row')}, {bytes_text(bar.size_bytes)}",
        *keys,
        plain(name[-_HOVER_CHARACTERS:]),
        *(["<b>in quarantine</b>"] if bar.is_quarantined else []),
    ]
    return "<br>".join(lines)


def sizes_chart(space: KeySpace) -> Chart | None:
    from plotly import graph_objects

    panels = [p for p in (space.before, space.now) if p is not None and p.sizes]
    if not panels:
        return None
    bins = sorted({b.lower_bytes for p in panels for b in p.sizes})
    # A single size class would make a bar as wide as the chart.
    smallest, largest = bins[0].bit_length() - 1, bins[-1].bit_length()
    margin = max(0, (_MIN_BINS - (largest - smallest) + 1) // 2)
    lowers = [1 << n for n in range(max(0, smallest - margin), largest + margin)]
    names = {id(space.before): "before", id(space.now): "now"}
    figure = subplots(
        rows=1, cols=len(panels), shared_yaxes=True, horizontal_spacing=0.04,
        subplot_titles=[f"{names[id(p)]}, version {p.version:,}" for p in panels],
    )  # fmt: skip
    shown: set[int] = set()
    for column, p in enumerate(panels, 1):
        for level in sorted({b.level for b in p.sizes}):
            counts = {b.lower_bytes: b.fragments for b in p.sizes if b.level == level}
            figure.add_trace(
                graph_objects.Bar(
                    x=[bytes_text(lower, binary=True) for lower in lowers],
                    y=[counts.get(lower, 0) for lower in lowers],
                    name=f"level {level}",
                    legendgroup=f"level {level}",
                    showlegend=level not in shown,
                    marker={"color": level_color(level), "line": {"width": 0}},
                    hovertemplate=f"%{{y}} of level {level}, %{{x}} to twice that<extra></extra>",
                ),
                row=1, col=column,
            )  # fmt: skip
            shown.add(level)
    highest = max(
        sum(b.fragments for b in p.sizes if b.lower_bytes == at) for p in panels for at in bins
    )
    # Plotly would put ticks at halves for small counts.
    step = 1 if highest <= 5 else None
    figure.update_yaxes(
        row=1, col=1, title="fragments", rangemode="tozero", tickformat=",d", dtick=step
    )
    figure.update_xaxes(type="category", tickangle=-40 if len(lowers) * len(panels) > 6 else 0)
    titles_at_left(figure, per_column=True)
    lay_out(figure, 320, barmode="stack", bargap=0.18, margin={"t": TOP_PIXELS})
    return Chart(
        name="sizes",
        title="Sizes of fragments",
        text="Fragments by size and level; a bar is a size up to twice that.",
        figure=figure,
    )
