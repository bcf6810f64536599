"""Shows where the time of a compaction goes, by stage: 16 overlapping inputs of logs in two sort orders.

    python -m bench.bench_stages                                    1 million rows
    python -m bench.bench_stages --rows 4000000 --plot docs/img/stages.png

Seconds are the merging thread's, each counted once, as `compactor compact --profile` shows them; the
better of two runs, in this process, on a local folder.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Final

from bench.results import RESULTS, write_results
from bench.tables import LOG_SORT, compaction_of_all, write_table
from bench.workload import make_overlapping_inputs
from compactor.compaction.attempt import run_compaction
from compactor.resources.stopwatch import STAGES
from compactor.settings.compaction import CompactionSettings
from compactor.stores.local import LocalStore

SHAPES: Final = {"grouped": LOG_SORT, "interleaved": "timestamp"}
_OTHER: Final = "other"
_COLORS: Final = (
    "#c9d6e2", "#1f6fb4", "#7a4fa3", "#2a9d8f", "#e9c46a", "#e76f51", "#264653", "#8d99ae", "#dddddd",
)  # fmt: skip


def seconds_by_stage(folder: Path, runs: int = 2) -> dict[str, float]:
    """Returns the seconds by stage of the fastest of several compactions of a table."""
    best: dict[str, float] = {}
    for _ in range(runs):
        store = LocalStore(folder)
        outcome = run_compaction(compaction_of_all(store, CompactionSettings()), store)
        assert outcome.report is not None, outcome.failure
        for entry in outcome.outputs:
            store.delete(entry.key)
        stages = dict(outcome.report.stage_seconds)
        stages[_OTHER] = max(0.0, outcome.report.seconds - sum(stages.values()))
        if not best or sum(stages.values()) < sum(best.values()):
            best = stages
    return best


def draw(figures: dict[str, dict[str, float]], rows: int, path: Path) -> None:
    """Draws one bar per shape, in the colours of its stages."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9.6, 2.2), dpi=150, layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    names = list(figures)[::-1]
    left = [0.0] * len(names)
    for stage, color in zip((*STAGES, _OTHER), _COLORS, strict=True):
        widths = [figures[name][stage] for name in names]
        if max(widths) < 0.005 * sum(figures[names[0]].values()):
            continue
        bars = axes.barh(names, widths, 0.6, left=left, color=color, label=stage)
        axes.bar_label(
            bars,
            [f"{w:.2f}" if w > 0.04 * sum(figures[names[0]].values()) else "" for w in widths],
            label_type="center",
            fontsize=8,
            color="white" if color not in ("#e9c46a", "#dddddd", "#c9d6e2") else "black",
        )
        left = [start + width for start, width in zip(left, widths, strict=True)]
    axes.set_title(
        f"Seconds by stage: 16 inputs, {rows:,} log rows, one core", fontsize=10, loc="left"
    )
    axes.legend(ncols=5, fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--inputs", type=int, default=16)
    parser.add_argument("--plot", type=Path)
    parser.add_argument("--results", type=Path, default=RESULTS / "stages.json")
    options = parser.parse_args()
    figures: dict[str, dict[str, float]] = {}
    with tempfile.TemporaryDirectory() as work:
        for name, sort in SHAPES.items():
            folder = Path(work) / name
            write_table(folder, make_overlapping_inputs(options.rows, options.inputs, seed=7), sort)
            figures[name] = seconds_by_stage(folder)
    print(f"{'stage':<14}" + "".join(f"{name:>14}" for name in figures))
    for stage in (*STAGES, _OTHER):
        print(f"{stage:<14}" + "".join(f"{figures[name][stage]:>13.2f}s" for name in figures))
    cases = [{"shape": name, **stages} for name, stages in figures.items()]
    write_results(options.results, {"rows": options.rows, "inputs": options.inputs}, cases)
    if options.plot:
        draw(figures, options.rows, options.plot)


if __name__ == "__main__":
    main()
