"""Runs a pipeline in phases.

The outputs of the init phase are published before the other outputs' sources are opened, so that these can
read them.
"""

from __future__ import annotations

import os
from collections.abc import Collection
from contextlib import ExitStack, closing
from fnmatch import fnmatch
from functools import partial

from compactor.errors import ConfigError
from compactor.files.places import is_stream
from compactor.pipelines.classify import ancestors
from compactor.pipelines.config import Output, Pipeline, Source
from compactor.pipelines.dead_letters import opened_dead_letters
from compactor.pipelines.guesses import run_by_guesses
from compactor.pipelines.located import at_node
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.run_report import RunReport
from compactor.settings.names import in_pipeline, settings_named
from compactor.settings.paths import identity


@settings_named(in_pipeline)
def run_pipeline(pipeline: Pipeline) -> RunReport:
    """Runs a pipeline and returns its report.

    On `CompactorError` no output of the failed phase contains anything of this run.
    """
    with pipeline.variables.hidden():
        return _run(pipeline)


def check_pipeline(pipeline: Pipeline) -> None:
    """Opens the sources and binds all nodes, except those of later phases that read what earlier ones write.

    Raises `CompactorError`.
    """
    with pipeline.variables.hidden():
        first, rest = phases_of(pipeline)
        _check_streams(pipeline, first, rest)
        if first.nodes:
            PipelineRun(first).close()
        if not _reads_outputs(rest, first):
            PipelineRun(rest).close()


def _run(pipeline: Pipeline) -> RunReport:
    if not pipeline.init:
        return PipelineRun(pipeline).run() if _has_stream(pipeline) else run_by_guesses(pipeline)
    first, rest = phases_of(pipeline)
    _check_streams(pipeline, first, rest)
    with opened_dead_letters(pipeline) as sink, ExitStack() as runs:
        before = runs.enter_context(closing(PipelineRun(first, dead_letters_sink=sink)))
        bind_rest = partial(PipelineRun, rest, dead_letters_sink=sink, reported=tuple(first.nodes))
        # Bind the second phase before anything runs, unless its sources may not exist yet.
        after = None if _reads_outputs(rest, first) else bind_rest()
        if after is not None:
            runs.enter_context(closing(after))
        report = before.run()
        if rest.nodes:
            report.add((after or bind_rest()).run())
    return report


def _check_streams(pipeline: Pipeline, first: Pipeline, rest: Pipeline) -> None:
    """Raises `ConfigError` for a stream that both phases read."""
    for name, node in first.nodes.items():
        if name in rest.nodes and isinstance(node, Source) and is_stream(node.path):
            with at_node(pipeline, name):
                raise ConfigError(
                    f"{node.path} can be read only once, and both phases read it: save it as a file"
                )


def _has_stream(pipeline: Pipeline) -> bool:
    """Returns whether a source can be read only once."""
    nodes = pipeline.nodes.values()
    return any(isinstance(node, Source) and is_stream(node.path) for node in nodes)


def phases_of(pipeline: Pipeline) -> tuple[Pipeline, Pipeline]:
    """Splits a pipeline into the init phase and the rest, each with all upstream nodes. Nodes may be in
    both."""
    others = [
        name
        for name, node in pipeline.nodes.items()
        if isinstance(node, Output) and name not in pipeline.init
    ]
    return _only(pipeline, pipeline.init), _only(pipeline, others)


def _only(pipeline: Pipeline, outputs: Collection[str]) -> Pipeline:
    kept = ancestors(outputs, pipeline.nodes)
    nodes = {name: node for name, node in pipeline.nodes.items() if name in kept}
    return pipeline.model_copy(update={"nodes": nodes})


def _reads_outputs(rest: Pipeline, first: Pipeline) -> bool:
    """Returns whether a source may read an output of the first phase."""
    written = [node for node in first.nodes.values() if isinstance(node, Output)]
    sources = [node for node in rest.nodes.values() if isinstance(node, Source)]
    return any(_may_read(source, output) for source in sources for output in written)


def _may_read(source: Source, output: Output) -> bool:
    if output.table is not None:
        return source.table is not None and identity(source.table) == identity(output.table)
    if source.path is None or output.path is None:
        return False
    written, read = (os.path.dirname(identity(path)) for path in (output.path, source.path))  # noqa: PTH120
    return written == read or fnmatch(written, read)
