"""Renders the report as one self-contained HTML file.

Column names and keys from tables stay text: Jinja2 escapes them in HTML, and `_packed` leaves no `<` of the
figures. The content security policy allows only our scripts, by hash, and no fetches.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from importlib.resources import files
from typing import Final

from compactor import __version__
from compactor.common.counts import counted
from compactor.common.escaping import shortened
from compactor.report.chart import Chart, level_color
from compactor.report.charts import charts, plotly_script
from compactor.report.data import ColumnRow, Report
from compactor.report.text import bytes_text, seconds_range, seconds_text, when_text

MAX_ROWS: Final = 50
"""Maximum rows in the page's tables of steps, compactions and fragments."""
MAX_COLUMNS: Final = 200
"""Maximum columns shown: each takes some 300 of the 2,000,000 bytes that a page may have."""


def page(report: Report) -> str:
    """Returns the HTML. Needs the extra `report`; see `charts.check_plotly`."""
    from jinja2 import Environment, StrictUndefined
    from markupsafe import Markup

    environment = Environment(autoescape=True, undefined=StrictUndefined)
    environment.filters.update(
        bytes=bytes_text,
        counted=counted,
        seconds=seconds_text,
        seconds_range=seconds_range,
        when=when_text,
        clip=shortened,
    )
    drawn = charts(report)
    plotly, script = plotly_script().strip(), _resource("page.js")
    columns = shown_columns(report)
    # Markup is reserved for our own files and what `_packed` returns.
    return environment.from_string(_resource("page.html.j2")).render(
        report=report,
        head=report.headline,
        charts={chart.name: chart for chart in drawn},
        runs=report.history.runs[:MAX_ROWS],
        columns=columns,
        planned=report.pending.planned,
        has_windows=any(row.window is not None for row in report.pending.held),
        stored=max(1, sum(row.stored_bytes for row in report.columns.rows)),
        widest=max(1, *(row.stored_bytes for row in columns), 1),
        max_rows=MAX_ROWS,
        level_color=level_color,
        program=__version__,
        policy=_policy(plotly, script),
        css=Markup(_resource("page.css")),
        figures=Markup(_packed(_figures_text(drawn))),
        plotly=Markup(_packed(plotly)),
        script=Markup(script),
    )


def shown_columns(report: Report) -> list[ColumnRow]:
    """Returns the columns to show, largest first."""
    ordered = sorted(report.columns.rows, key=lambda row: -row.stored_bytes)
    return ordered[:MAX_COLUMNS]


def _policy(*scripts: str) -> str:
    """Returns the content security policy, which allows Plotly's generated styles and images."""
    hashes = " ".join(f"'sha256-{_sha256(script)}'" for script in scripts)
    return (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def _packed(text: str) -> str:
    """Returns a text in at most 40% of its characters: gzip, in base 85 without `<`. The page unpacks it.

    Zeros before the 85ths fill the last word, and the first character says how many.
    """
    data = gzip.compress(text.encode(), 9, mtime=0)
    filled = -len(data) % 4
    return f"{filled}{base64.b85encode(bytes(filled) + data).decode().replace('<', ',')}"


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _figures_text(drawn: list[Chart]) -> str:
    figures = {chart.name: json.loads(chart.figure.to_json()) for chart in drawn}
    return json.dumps(figures, separators=(",", ":"), allow_nan=False)


def _resource(name: str) -> str:
    return files("compactor.report").joinpath(name).read_text(encoding="utf-8").strip()
