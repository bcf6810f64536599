"""All charts of a report, and Plotly itself."""

from __future__ import annotations

from compactor.report.chart import Chart
from compactor.report.data import Report
from compactor.report.fragment_charts import fragments_chart, sizes_chart
from compactor.report.history_charts import (
    ingested_charts,
    reads_chart,
    storage_chart,
    writes_chart,
)
from compactor.report.run_charts import memory_chart, stages_chart
from compactor.resources.packages import Extra, required


def check_plotly() -> None:
    """Raises `UsageError` without the packages for HTML pages."""
    with required(Extra.REPORT, "report", " (--json needs nothing)"):
        import jinja2  # noqa: F401
        import plotly  # noqa: F401


def plotly_script() -> str:
    """Returns Plotly's JavaScript."""
    from plotly.offline import get_plotlyjs

    script: str = get_plotlyjs()
    return script


def charts(report: Report) -> list[Chart]:
    """Returns the non-empty charts."""
    drawn: list[Chart | None] = [
        fragments_chart(report.key_space, report.headline.windows),
        sizes_chart(report.key_space),
        *ingested_charts(report.history.points),
        reads_chart(report.history.points),
        writes_chart(report.history.points),
        storage_chart(report.history.points),
        stages_chart(report.history.runs),
        memory_chart(report.history.runs),
    ]
    return [chart for chart in drawn if chart is not None]
