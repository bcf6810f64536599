"""Log messages from templates, rendered for all rows of a template at once.

`log_templates.txt` lists the templates by family. `choose` draws a template per row, and `render` fills in
the
parameters: one string concatenation per template, then one gather into row order.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from bench.log_parameters import Parameters

LEVELS: Final = ("DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_TEMPLATE_FILE: Final = Path(__file__).with_name("log_templates.txt")
_PARAMETER: Final = re.compile(r"\{([a-z][a-z0-9]*)\}")
_REPEAT_FRACTION: Final = 0.4
"""Fraction of rows that repeat the previous template of their family, as loops do."""


class Template(Struct, frozen=True):
    """One message shape; `pieces` alternates literal text and parameter names."""

    family: str
    level: str
    weight: float
    pieces: tuple[str, ...]

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.pieces[1::2]

    def render(self, rows: npt.NDArray[np.int64], parameters: Parameters) -> pa.StringArray:
        """Returns a message for each of `rows` (positions in the parameters' block)."""
        if not self.parameters:
            return pa.repeat(pa.scalar(self.pieces[0], pa.string()), len(rows))
        filled = [
            parameters.draw(piece, rows) if i % 2 else pa.scalar(piece, pa.string())
            for i, piece in enumerate(self.pieces)
        ]
        return pc.binary_join_element_wise(*filled, "")


@cache
def templates() -> tuple[Template, ...]:
    """Returns all templates of the fleet, in file order."""
    family, found = "", []
    for line in _TEMPLATE_FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            family = line.strip("[]")
        elif line and not line.startswith("#"):
            level, weight, text = line.split(" ", 2)
            found.append(Template(family, level, float(weight), tuple(_PARAMETER.split(text))))
    return tuple(found)


class TemplateTraits(Struct, frozen=True):
    """Properties that rows inherit from their template, by template number."""

    level: npt.NDArray[np.int64]
    is_http: npt.NDArray[np.bool_]


@cache
def traits() -> TemplateTraits:
    """Returns the level (an index into `LEVELS`) and the kind of every template."""
    return TemplateTraits(
        level=np.array([LEVELS.index(t.level) for t in templates()]),
        is_http=np.array(["status" in t.parameters for t in templates()]),
    )


def choose(
    family: npt.NDArray[np.int64], names: tuple[str, ...], rng: np.random.Generator
) -> npt.NDArray[np.int64]:
    """Draws a template number per row; `family` indexes `names`."""
    chosen = np.zeros(len(family), np.int64)
    for code, name in enumerate(names):
        rows = np.flatnonzero(family == code)
        numbers = np.array([i for i, t in enumerate(templates()) if t.family == name])
        weights = np.array([templates()[i].weight for i in numbers])
        drawn = rng.choice(numbers, len(rows), p=weights / weights.sum())
        fresh = rng.random(len(rows)) >= _REPEAT_FRACTION
        latest = np.maximum.accumulate(np.where(fresh, np.arange(len(rows)), 0))
        chosen[rows] = drawn[latest]
    return chosen


def render(
    chosen: npt.NDArray[np.int64],
    source: npt.NDArray[np.int64],
    row_values: Mapping[str, pa.StringArray],
    rng: np.random.Generator,
) -> pa.StringArray:
    """Renders the chosen templates, in row order; at most 2 GiB of text per call.

    `source` numbers the process that logged each row: messages of a process have parameter values in common.
    """
    parameters = Parameters(rng, _inverse(np.argsort(source, kind="stable")), row_values)
    by_template = np.argsort(chosen, kind="stable")
    bounds = np.searchsorted(chosen[by_template], np.arange(len(templates()) + 1))
    rendered = [
        template.render(by_template[bounds[i] : bounds[i + 1]], parameters)
        for i, template in enumerate(templates())
        if bounds[i] < bounds[i + 1]
    ]
    return pa.concat_arrays(rendered).take(pa.array(_inverse(by_template)))


def _inverse(permutation: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    inverse = np.empty_like(permutation)
    inverse[permutation] = np.arange(len(permutation))
    return inverse
