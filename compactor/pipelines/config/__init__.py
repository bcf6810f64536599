"""Reads a pipeline's YAML file and checks it as a whole. Pure, apart from reading the file."""

from compactor.pipelines.config.load import load_pipeline, parse_pipeline
from compactor.pipelines.config.nodes import (
    MAX_WINDOW_ROWS,
    Aggregate,
    Combine,
    Merge,
    MergeMode,
    Method,
    Node,
    Output,
    RangeCondition,
    Route,
    Sort,
    Source,
    Split,
    TimeWindow,
    Transform,
    Window,
    inputs_of,
    keys_of,
)
from compactor.pipelines.config.pipeline import Memory, Pipeline

__all__ = [
    "MAX_WINDOW_ROWS",
    "Aggregate",
    "Combine",
    "Memory",
    "Merge",
    "MergeMode",
    "Method",
    "Node",
    "Output",
    "Pipeline",
    "RangeCondition",
    "Route",
    "Sort",
    "Source",
    "Split",
    "TimeWindow",
    "Transform",
    "Window",
    "inputs_of",
    "keys_of",
    "load_pipeline",
    "parse_pipeline",
]
