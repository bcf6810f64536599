"""The panels of the dashboard: metrics of the catalogue, and how they are added up."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from compactor.telemetry.metrics import catalog as c
from compactor.telemetry.metrics.catalog import Metric

_INTERVAL: Final = "$__rate_interval"
DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Query:
    """A query, and the legend of its curves."""

    expr: str
    legend: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Panel:
    """A panel of curves or, as a stat, of one number."""

    title: str
    queries: Sequence[Query]
    about: str = ""
    unit: str = "short"
    is_stacked: bool = False
    limits: Sequence[tuple[str, float]] = ()
    """Colours from a value on; below the first it is green."""
    highest: float | None = None
    is_stat: bool = False


def series(metric: Metric, **labels: str) -> str:
    """Returns the series of a metric for the chosen tables. labels: values, or what follows the name."""
    parts = ['table=~"$table"'] if "table" in metric.labels else []
    for name, value in labels.items():
        parts.append(name + (value if value[0] in "!=" else f'="{value}"'))
    return f"{metric.name}{{{','.join(parts)}}}" if parts else metric.name


def most(metric: Metric, by: str = "table", **labels: str) -> str:
    """Returns a gauge that each worker has alike."""
    return f"max by ({by}) ({series(metric, **labels)})"


def each_second(metric: Metric, by: str = "table", **labels: str) -> str:
    """Returns a counter's growth a second, over all workers."""
    return f"sum by ({by}) (rate({series(metric, **labels)}[{_INTERVAL}]))"


def quantiles(metric: Metric) -> list[Query]:
    buckets = f"{metric.name}_bucket" + '{table=~"$table"}'
    rate = f"sum by (le) (rate({buckets}[{_INTERVAL}]))"
    return [
        Query(f"histogram_quantile({share}, {rate})", f"p{round(share * 100)}")
        for share in (0.5, 0.95, 0.99)
    ]


def _by_level(metric: Metric) -> str:
    return f"sum by (level) ({most(metric, 'table, level')})"


def _per_gigabyte(kinds: str) -> str:
    requests = series(c.STORE_REQUESTS, kind=f'=~"{kinds}"')
    grown = f"max by (table) (delta({series(c.INGESTED_BYTES)}[6h]))"
    return f"sum by (table) (increase({requests}[6h])) / ({grown} / 1e9 > 0)"


def _read_amplification() -> str:
    levels = most(c.LEVEL_BYTES, "table, level", level='!="0"')
    runs = most(c.LEVEL0_RUNS)
    return f"{runs} + (count by (table) ({levels} > 0) or 0 * {runs})"


_LATE: Final = (("orange", DAY_SECONDS * 2.0), ("red", DAY_SECONDS * 7.0))

STATS: Final = (
    Panel(
        title="Highest debt", is_stat=True, limits=(("orange", 0.5), ("red", 1.0)),
        queries=[Query(f"max({series(c.DEBT_SCORE)})", "debt")],
        about="From 0.5 on writers should slow down, from 1 on wait.",
    ),
    Panel(
        title="Longest wait", is_stat=True, unit="s", limits=(("orange", 900.0), ("red", 3600.0)),
        queries=[Query(f"max({series(c.WAITING_SECONDS)})", "wait")],
        about="Of a fleet's tables, for a compaction that is due.",
    ),
    Panel(
        title="Tables of fleets", is_stat=True,
        queries=[Query(f"max by (state) ({series(c.FLEET_TABLES)}) > 0", "{{state}}")],
    ),
    Panel(
        title="Compactions in an hour", is_stat=True,
        queries=[Query(f"sum(increase({series(c.COMPACTIONS, outcome='done')}[1h]))", "done")],
    ),
    Panel(
        title="Fragments in quarantine", is_stat=True, limits=(("red", 1.0),),
        queries=[Query(f"sum({most(c.QUARANTINED)})", "fragments")],
    ),
    Panel(
        title="Oldest vacuum", is_stat=True, unit="s", limits=_LATE,
        queries=[Query(f"max(time() - {most(c.RUN_LAST_SUCCESS, command='vacuum')})", "age")],
        about="Of the tables whose vacuums tell Prometheus.",
    ),
)  # fmt: skip

ROWS: Final[Sequence[tuple[str, Sequence[Sequence[Panel]]]]] = (
    (
        "Debt and back-pressure",
        (
            (
                Panel(
                    title="Compaction debt", queries=[Query(most(c.DEBT_SCORE), "{{table}}")],
                    about="From 0.5 on writers should slow down, from 1 on wait.",
                    limits=(("orange", 0.5), ("red", 1.0)),
                ),
                Panel(
                    title="Bytes waiting for compaction", unit="bytes",
                    queries=[
                        Query(most(c.PENDING_BYTES), "{{table}}"),
                        Query(most(c.DUE_BYTES), "{{table}} due now"),
                    ],
                    about="To be written until every level is within its target.",
                ),
                Panel(
                    title="Back-pressure", about="The state that holds.", is_stacked=True,
                    queries=[Query(most(c.BACK_PRESSURE, "table, state"), "{{table}} {{state}}")],
                ),
            ),
            (
                Panel(
                    title="Bytes by level", unit="bytes", is_stacked=True,
                    queries=[Query(_by_level(c.LEVEL_BYTES), "level {{level}}")],
                ),
                Panel(
                    title="Fragments by level", is_stacked=True,
                    queries=[Query(_by_level(c.LEVEL_FRAGMENTS), "level {{level}}")],
                ),
                Panel(
                    title="Sorted runs at level 0", about="Of the time window that has most.",
                    queries=[Query(most(c.LEVEL0_RUNS), "{{table}}")],
                ),
                Panel(
                    title="Compactions under way",
                    about="Of the workers scraped; leases are those of all.",
                    queries=[
                        Query(f"sum by (table) ({series(c.INFLIGHT)})", "{{table}} under way"),
                        Query(most(c.LEASES), "{{table}} leased"),
                        Query(most(c.WAITING_COMPACTIONS), "{{table}} waiting"),
                    ],
                ),
            ),
            (
                Panel(
                    title="Versions not compacted", about="0 once all that came in is compacted.",
                    queries=[
                        Query(f"{most(c.TABLE_VERSION)} - {most(c.COMPACTED_THROUGH)}", "{{table}}")
                    ],
                ),
                Panel(
                    title="Waiting for a compaction", unit="s",
                    about="For how long one of a fleet's table has been due, and none has begun.",
                    queries=[Query(f"{most(c.WAITING_SECONDS)} > 0", "{{table}}")],
                ),
                Panel(
                    title="Tables that are not there",
                    about="1 for an address that is watched and has no table.",
                    queries=[Query(most(c.AWAITED), "{{table}}")],
                ),
            ),
        ),
    ),
    (
        "Throughput",
        (
            (
                Panel(
                    title="Rows merged", unit="rowsps",
                    about="In and out of compactions that were committed.",
                    queries=[
                        Query(each_second(c.INPUT_ROWS), "{{table}} in"),
                        Query(each_second(c.OUTPUT_ROWS), "{{table}} out"),
                    ],
                ),
                Panel(
                    title="Bytes read and written", unit="Bps",
                    about="By compactions (task) and for the log (driver).",
                    queries=[
                        Query(each_second(c.READ_BYTES, "table, role"), "{{table}} read, {{role}}"),
                        Query(
                            each_second(c.WRITTEN_BYTES, "table, role"), "{{table}} written, {{role}}"
                        ),
                    ],
                ),
                Panel(
                    title="Compactions", unit="cps", about="Attempts that ended, by outcome.",
                    queries=[
                        Query(each_second(c.COMPACTIONS, "table, outcome"), "{{table}} {{outcome}}")
                    ],
                ),
            ),
            (
                Panel(
                    title="Fragments merged", unit="cps",
                    queries=[
                        Query(each_second(c.INPUT_FRAGMENTS), "{{table}} in"),
                        Query(each_second(c.OUTPUT_FRAGMENTS), "{{table}} out"),
                    ],
                ),
                Panel(
                    title="GETs and objects", unit="reqps",
                    about="GETs of whole objects and of ranges, and objects that became visible.",
                    queries=[
                        Query(each_second(c.STORE_GETS, "role"), "GET, {{role}}"),
                        Query(each_second(c.STORE_RANGE_GETS, "role"), "range GET, {{role}}"),
                        Query(each_second(c.STORE_PUTS, "role"), "objects written, {{role}}"),
                    ],
                ),
                Panel(
                    title="Versions committed", unit="cps",
                    queries=[
                        Query(each_second(c.COMMITS, "table, operation"), "{{table}} {{operation}}")
                    ],
                ),
                Panel(
                    title="Bytes ingested and compacted", unit="Bps",
                    about="Growth of the table's own totals.",
                    queries=[
                        Query(
                            f"max by (table) (deriv({series(metric)}[15m]))", f"{{{{table}}}} {word}"
                        )
                        for metric, word in (
                            (c.INGESTED_BYTES, "ingested"),
                            (c.COMPACTED_BYTES, "compacted"),
                        )
                    ],
                ),
            ),
            (
                Panel(
                    title="Requests by kind", unit="reqps",
                    about="All that were sent to the store: parts of uploads, pages of listings, further "
                    "tries.",
                    queries=[
                        Query(each_second(c.STORE_REQUESTS, "kind, role"), "{{kind}}, {{role}}")
                    ],
                ),
                Panel(
                    title="Requests for a GB ingested",
                    about="Over 6 hours. What stores bill: PUT, POST and LIST are the dear ones, DELETE is "
                    "free. Batch commands count if they publish metrics.",
                    queries=[
                        Query(_per_gigabyte("put|post|list"), "PUT, POST, LIST, {{table}}"),
                        Query(_per_gigabyte("get|head"), "GET, HEAD, {{table}}"),
                    ],
                ),
            ),
        ),
    ),
    (
        "Amplification",
        (
            (
                Panel(
                    title="Write amplification", about="Bytes ever written for a byte ingested.",
                    queries=[Query(most(c.WRITE_AMPLIFICATION), "{{table}}")],
                ),
                Panel(
                    title="Read amplification",
                    about="Sorted runs that a reader of all rows merges: those of level 0, and one for each "
                    "level below.",
                    queries=[Query(_read_amplification(), "{{table}}")],
                ),
                Panel(
                    title="GETs for an input fragment", about="1 unless attempts fail.",
                    queries=[
                        Query(
                            f"{each_second(c.STORE_GETS, role='task')} / "
                            f"({each_second(c.INPUT_FRAGMENTS)} > 0)",
                            "{{table}}",
                        )
                    ],
                ),
                Panel(
                    title="Rows left out and passed on", unit="rowsps",
                    about="Left out: deleted, expired, superseded, tombstones. Passed on: unread, as they "
                    "were stored.",
                    queries=[
                        Query(each_second(c.DROPPED_ROWS, "reason"), "{{reason}}"),
                        Query(each_second(c.COPIED_ROWS), "{{table}} passed on"),
                    ],
                ),
            ),
        ),
    ),
    (
        "Errors, retries, quarantine",
        (
            (
                Panel(
                    title="Failed attempts and retries", unit="cps",
                    queries=[
                        Query(each_second(c.COMPACTIONS, outcome="failed"), "{{table}} failed"),
                        Query(each_second(c.RETRIES), "{{table}} retried"),
                        Query(each_second(c.COMPACTIONS, outcome="void"), "{{table}} void"),
                    ],
                ),
                Panel(
                    title="Fragments in quarantine by table", about="`compactor inspect` shows why.",
                    limits=(("red", 1.0),), queries=[Query(most(c.QUARANTINED), "{{table}}")],
                ),
                Panel(
                    title="Lost races for a version", unit="cps", about="Each is a further try.",
                    queries=[Query(each_second(c.CONFLICTS), "{{table}}")],
                ),
                Panel(
                    title="Commits and steps that failed", unit="cps",
                    queries=[
                        Query(each_second(c.COMMIT_FAILURES, "table, end"), "{{table}} commit {{end}}"),
                        Query(each_second(c.STEP_FAILURES), "{{table}} step"),
                    ],
                ),
            ),
            (
                Panel(
                    title="Requests sent again", unit="reqps",
                    about="By the S3 client; resumed: continued at their offset.",
                    queries=[
                        Query(each_second(c.STORE_RETRIES, "table, role"), "{{table}} again, {{role}}"),
                        Query(each_second(c.STORE_RESUMED, "table, role"), "{{table}} resumed, {{role}}"),
                    ],
                ),
                Panel(
                    title="Second passes", unit="cps",
                    about="Merges begun anew for heavy row groups, and inputs read again from local disk.",
                    queries=[
                        Query(each_second(c.SECOND_PASSES), "{{table}} second passes"),
                        Query(each_second(c.REPLAYED_INPUTS), "{{table}} inputs replayed"),
                    ],
                ),
            ),
        ),
    ),
    (
        "Batch commands and vacuums",
        (
            (
                Panel(
                    title="Last runs", about="1: the last run ended well.", highest=1.0,
                    queries=[
                        Query(
                            f"min by (table, command) ({series(c.RUN_SUCCESS)})", "{{command}} {{table}}"
                        )
                    ],
                ),
                Panel(
                    title="Since the last run that ended well", unit="s",
                    queries=[
                        Query(
                            f"time() - {most(c.RUN_LAST_SUCCESS, 'table, command')}",
                            "{{command}} {{table}}",
                        )
                    ],
                ),
                Panel(
                    title="Seconds of runs", unit="s",
                    queries=[Query(most(c.RUN_SECONDS, "table, command"), "{{command}} {{table}}")],
                ),
                Panel(
                    title="Removed by vacuums", unit="bytes",
                    about="Over a day.",
                    queries=[
                        Query(
                            f"sum by (table) (increase({series(c.VACUUMED_BYTES)}[1d]))", "{{table}}"
                        )
                    ],
                ),
            ),
        ),
    ),
    (
        "Memory and local disk",
        (
            (
                Panel(
                    title="Memory charged", unit="bytes", about="Peak of the last attempt, and its limit.",
                    queries=[
                        Query(most(c.PEAK_CHARGED_BYTES), "{{table}} charged"),
                        Query(most(c.MEMORY_LIMIT_BYTES), "{{table}} limit"),
                    ],
                ),
                Panel(
                    title="Resident memory", unit="bytes",
                    about="Of the process that ran the last attempt (its peak), and of workers now.",
                    queries=[
                        Query(most(c.PEAK_RSS_BYTES), "{{table}} attempt"),
                        Query(
                            "process_resident_memory_bytes and on (instance, job) "
                            f"{c.BUILD_INFO.name}",
                            "{{instance}}",
                        ),
                    ],
                ),
                Panel(
                    title="Spilled to local disk", unit="Bps",
                    queries=[Query(each_second(c.SPILLED_BYTES), "{{table}}")],
                ),
            ),
        ),
    ),
    (
        "Latency",
        (
            (
                Panel(
                    title="Seconds of a compaction", unit="s", queries=quantiles(c.COMPACTION_SECONDS)
                ),
                Panel(
                    title="Seconds of a commit", unit="s", about="Further tries included.",
                    queries=quantiles(c.COMMIT_SECONDS),
                ),
                Panel(
                    title="Where the time goes", is_stacked=True,
                    about="Seconds of merging threads in a second, by stage.",
                    queries=[Query(each_second(c.STAGE_SECONDS, "stage"), "{{stage}}")],
                ),
                Panel(
                    title="Since the last success", unit="s",
                    queries=[
                        Query(f"time() - {most(c.LAST_SUCCESS)}", "{{table}}"),
                        Query(f"time() - {c.LAST_TURN.name}", "loop of {{instance}}"),
                    ],
                ),
            ),
        ),
    ),
)  # fmt: skip
