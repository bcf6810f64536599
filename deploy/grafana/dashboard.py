"""Makes the dashboard of Grafana from the catalogue of metrics: `python -m deploy.grafana.dashboard`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from compactor.telemetry.metrics import catalog as c
from deploy.grafana.panels import ROWS, STATS, Panel

PLACE: Final = Path(__file__).with_name("compactor.json")
_WIDTH: Final = 24
_HEIGHT: Final = 8
_STAT_HEIGHT: Final = 4
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> dict[str, Any]:
    """Returns the dashboard as Grafana imports it."""
    panels = list(_placed())
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "annotations": {"list": []},
        "description": "Tables and workers of compactor. Metrics: docs/reference/metrics.md.",
        "editable": True,
        "graphTooltip": 1,
        "id": None,
        "links": [],
        "panels": panels,
        "refresh": "30s",
        "schemaVersion": 39,
        "tags": ["compactor"],
        "templating": {"list": _variables()},
        "time": {"from": "now-6h", "to": "now"},
        "timepicker": {},
        "timezone": "",
        "title": "compactor",
        "uid": "compactor",
        "version": 1,
        "weekStart": "",
    }


def text() -> str:
    """Returns the content of `compactor.json`: a line for each panel."""
    made = dashboard()
    panels = ",\n  ".join(map(json.dumps, made.pop("panels")))
    rest = ",\n ".join(f"{json.dumps(key)}: {json.dumps(value)}" for key, value in made.items())
    return f'{{\n "panels": [\n  {panels}\n ],\n {rest}\n}}\n'


def _placed() -> Iterator[dict[str, Any]]:
    """Yields the panels from the top down, each line of them over the whole width."""
    top = 0
    yield from _in_line(STATS, top, _STAT_HEIGHT)
    top += _STAT_HEIGHT
    for title, lines in ROWS:
        grid = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        yield {"type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []}
        top += 1
        for line in lines:
            yield from _in_line(line, top, _HEIGHT)
            top += _HEIGHT


def _in_line(line: Sequence[Panel], top: int, height: int) -> Iterator[dict[str, Any]]:
    width = _WIDTH // len(line)
    for number, panel in enumerate(line):
        grid = {"h": height, "w": width, "x": number * width, "y": top}
        yield {**(_stat(panel) if panel.is_stat else _curves(panel)), "gridPos": grid}


def _common(panel: Panel, kind: str, defaults: dict[str, Any]) -> dict[str, Any]:
    if panel.limits or panel.is_stat:
        steps = [("green", None), *panel.limits]
        defaults["thresholds"] = {
            "mode": "absolute",
            "steps": [{"color": color, "value": value} for color, value in steps],
        }
    return {
        "type": kind,
        "title": panel.title,
        "description": panel.about,
        "datasource": _SOURCE,
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": _SOURCE,
                "expr": query.expr,
                "legendFormat": query.legend,
            }
            for number, query in enumerate(panel.queries)
        ],
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, **defaults}, "overrides": []},
    }


def _stat(panel: Panel) -> dict[str, Any]:
    options = {
        "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False},
        "colorMode": "value",
        "graphMode": "area",
        "textMode": "auto",
    }
    return {**_common(panel, "stat", {}), "options": options}


def _curves(panel: Panel) -> dict[str, Any]:
    custom: dict[str, Any] = {
        "drawStyle": "line",
        "lineWidth": 1,
        "fillOpacity": 20 if panel.is_stacked else 5,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.is_stacked else "none", "group": "A"},
    }
    if panel.limits:
        custom["thresholdsStyle"] = {"mode": "line"}
    defaults: dict[str, Any] = {"custom": custom}
    if panel.highest is not None:
        defaults["max"] = panel.highest
    options = {
        "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
        "tooltip": {"mode": "multi", "sort": "desc"},
    }
    return {**_common(panel, "timeseries", defaults), "options": options}


def _variables() -> list[dict[str, Any]]:
    tables = f"label_values({c.TABLE_VERSION.name}, table)"
    common = {"hide": 0, "options": [], "regex": ""}
    return [
        {
            "name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus",
            "current": {}, "includeAll": False, "multi": False, "refresh": 1, **common,
        },
        {
            "name": "table", "label": "Table", "type": "query", "datasource": _SOURCE,
            "definition": tables, "query": {"query": tables, "refId": "table"},
            "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
            "includeAll": True, "allValue": ".*", "multi": True, "refresh": 2, "sort": 1, **common,
        },
    ]  # fmt: skip


if __name__ == "__main__":
    PLACE.write_text(text())
    print(f"{PLACE.name}: {len(dashboard()['panels'])} panels")
