"""Runs a pipeline with types guessed from the beginnings of its files, and again if one does not hold.

Outputs appear once everything is written, so those of a run that ends early are not seen.
"""

from __future__ import annotations

import time

from compactor.errors import CompactorError
from compactor.files.source import TypesDifferError
from compactor.pipelines.config import Pipeline, Source
from compactor.pipelines.nodes.source import SourceReader, open_source
from compactor.pipelines.pipeline_run import PipelineRun
from compactor.pipelines.run_report import RunReport
from compactor.pipelines.work import Reading


def run_by_guesses(pipeline: Pipeline) -> RunReport:
    """Runs a pipeline and returns its report. Raises `CompactorError`, as if the types had been known."""
    started = time.perf_counter()
    sources = _Sources()
    try:
        run = PipelineRun(pipeline, sources.guess)
    except CompactorError:
        if not sources.have_guesses:
            raise
        # Nodes may fit the types of whole files.
        run = PipelineRun(pipeline)
    spent = time.perf_counter() - started - run.report.seconds
    try:
        report = run.run()
    except TypesDifferError:
        spent = time.perf_counter() - started
        report = PipelineRun(pipeline, sources.open_again).run()
        report.restarts = 1
    report.seconds += spent
    return report


class _Sources:
    """The sources of a run whose types may be guesses, and of the run after it."""

    def __init__(self) -> None:
        self._opened: dict[str, tuple[Source, SourceReader]] = {}

    @property
    def have_guesses(self) -> bool:
        return any(file.is_guess for _, reader in self._opened.values() for file in reader.files)

    def guess(self, name: str, source: Source, how: Reading, /) -> SourceReader:
        reader = open_source(name, source, how, guesses=True)
        self._opened[name] = source, reader
        return reader

    def open_again(self, name: str, source: Source, how: Reading, /) -> SourceReader:
        """Opens a source that was settled, or one with other columns."""
        before, reader = self._opened[name]
        settled = reader.files if source == before else ()
        return open_source(name, source, how, settled=settled)
