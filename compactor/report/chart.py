"""The base of all charts.

Figures leave text and grid colours to the page's theme. Texts go through `plain`, because Plotly interprets
some HTML tags in them.
"""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any, Final

from msgspec import Struct

if TYPE_CHECKING:
    from plotly.graph_objects import Figure

LEVEL_COLORS: Final = (
    "#e8833a", "#8250df", "#2f8fd8", "#14998a", "#d4508f", "#8c8fa6", "#a98f12",
)  # fmt: skip
ALERT: Final = "#d9363e"
TOP_PIXELS: Final = 62
"""Height of the legend above the plot, then of the panel titles."""


class Chart(Struct, frozen=True, kw_only=True):
    """A figure with its title and description."""

    name: str
    """Element name in the page."""
    title: str
    text: str
    """Description of one or two sentences, also for screen readers."""
    figure: Figure
    is_wide: bool = False
    has_axes: bool = False
    """Whether the page can switch between time and version axes, with data from `figure.layout.meta`."""


def plain(text: str) -> str:
    """Escapes text for Plotly."""
    return html.escape(text.replace("\x00", "\N{REPLACEMENT CHARACTER}"), quote=False)


def level_color(level: int) -> str:
    return LEVEL_COLORS[level % len(LEVEL_COLORS)]


def subplots(**options: Any) -> Figure:
    from plotly.subplots import make_subplots

    figure: Figure = make_subplots(**options)
    return figure


def titles_at_left(figure: Figure, *, per_column: bool = False) -> None:
    for number, annotation in enumerate(figure.layout.annotations):
        axis = f"x{number + 1 if per_column and number else ''}"
        place = figure.layout[axis.replace("x", "xaxis")].domain[0] if per_column else 0
        annotation.update(x=place, xanchor="left", font={"size": 13}, yshift=3)


def lay_out(
    figure: Figure, height: int, *, margin: dict[str, int] | None = None, **options: Any
) -> None:
    figure.update_layout(
        template=None,
        height=height,
        autosize=True,
        margin={"l": 48, "r": 14, "t": 40, "b": 44, **(margin or {})},
        legend={
            "orientation": "h", "traceorder": "normal", "yref": "container", "y": 1, "yanchor": "top",
            "x": 0, "xanchor": "left", "itemsizing": "constant",
        },
        **options,
    )  # fmt: skip
