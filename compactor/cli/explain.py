"""Implements `compact --explain`: the memory plan of each compaction, stage by stage."""

from __future__ import annotations

import click

from compactor.cli.display import print_table
from compactor.cli.output import echo_json, echo_line, human_bytes
from compactor.common.counts import counted
from compactor.common.message import Message
from compactor.compaction.planned import Planned
from compactor.planner.spec import CompactionPlan, CompactionSpec
from compactor.resources.merge_plan import MergePlan


def explain_plan(planned: Planned, *, as_json: bool) -> None:
    """Prints the memory plans of the next compactions. Reads no data."""
    plan, memory_plans = planned.plan, planned.memory_plans()
    if as_json:
        echo_json(
            {
                "version": planned.snapshot.version,
                "compactions": [
                    {"reason": spec.reason, "inputs": len(spec.inputs), **memory.to_json()}
                    for spec, memory in zip(plan.specs, memory_plans, strict=True)
                ],
                "refused": list(plan.refused),
            }
        )
        return
    for spec, memory in zip(plan.specs, memory_plans, strict=True):
        _print_compaction(spec, memory)
    _print_rest(plan, planned.snapshot.version)


def _print_compaction(spec: CompactionSpec, memory: MergePlan) -> None:
    stages = memory.stages
    click.echo(
        f"{spec.reason}: {counted(len(spec.inputs), 'fragment')}, {counted(spec.rows, 'row')}, "
        f"{human_bytes(spec.size_bytes)}"
    )
    click.echo(
        f"  memory limit {_mib(stages.limit_bytes)}, needs {_mib(stages.need_bytes)}; above "
        f"{_mib(stages.limit_bytes * 4 // 5)} fetching pauses and stages spill, in this order of priority"
    )
    click.echo(
        f"  {human_bytes(memory.ahead_bytes)} fetched ahead of each input, "
        f"{counted(memory.batch_rows, 'row')} put "
        f"in order at a time, {'inputs' if memory.keeps_inputs else 'no inputs'} copied to local disk for a "
        "second pass"
    )
    columns = [("  stage", False), ("buffer", False), ("memory up to", True), ("disk up to", True),
               ("spills", True), ("back-pressure", False), ("holds", False)]  # fmt: skip
    print_table(None, columns, [
        [f"  {stage.name}", str(stage.buffer), human_bytes(stage.memory_bytes),
         human_bytes(stage.disk_bytes) if stage.disk_bytes else "-",
         "-" if stage.spill_priority is None else str(stage.spill_priority),
         "yes" if stage.applies_back_pressure else "-", stage.holds]
        for stage in stages
    ])  # fmt: skip
    click.echo("")


def _print_rest(plan: CompactionPlan, version: int) -> None:
    if not plan.specs and not plan.refused:
        click.echo(f"no compaction is due at version {version}")
    for line in plan.refused:
        echo_line(Message("refused: ", line))


def _mib(size: int) -> str:
    return f"{-(-size // (1 << 20)):,} MiB"
