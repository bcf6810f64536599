"""Random files of segments: EDIFACT, X12 and HL7."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any, Final, NamedTuple

_TEXTS: Final = ("", "1", "AB", "LIN", "Zoe", "4000862141404", "a b")
Found = tuple[int | None, int, str, list[list[str]], list[dict[str, Any]] | None]
"""What a reader finds of a segment: message, number, tag, elements and repeats."""


class _Marks(NamedTuple):
    component: str
    element: str
    end: str
    repeat: str | None


def write_segments(rng: random.Random, place: Path) -> tuple[str, list[Found]]:
    """Writes a file of a random standard. Returns its path, and what a reader finds."""
    return rng.choice((_edifact, _x12, _hl7))(rng, place)


def _elements(rng: random.Random) -> list[list[str]]:
    found = [
        [rng.choice(_TEXTS) for _ in range(rng.randint(1, 3))] for _ in range(rng.randint(1, 4))
    ]
    return [_without_end(components) for components in [*found, ["x"]]]


def _without_end(components: list[str]) -> list[str]:
    """Returns components as they are found: an element of nothing has none."""
    return [] if components == [""] else components


def _line(tag: str, elements: list[list[str]], marks: _Marks) -> str:
    return marks.element.join([tag, *(marks.component.join(c) for c in elements)])


def _messages(
    rng: random.Random, begin: str, end: str, tags: tuple[str, ...]
) -> list[tuple[int, str, list[list[str]]]]:
    found = []
    for message in range(1, rng.randint(1, 5)):
        body = [(message, rng.choice(tags), _elements(rng)) for _ in range(rng.randint(0, 6))]
        ends = [(message, end, [[str(len(body) + 2)], [str(message)]])] if end else []
        found += [(message, begin, [[str(message)], ["ORDERS"]]), *body, *ends]
    return found


def _edifact(rng: random.Random, place: Path) -> tuple[str, list[Found]]:
    component, element, end = rng.choice(((":", "+", "'"), ("^", "*", "~")))
    marks = _Marks(component, element, end, None)
    head = "" if component == ":" and rng.random() < 0.5 else f"UNA{component}{element}.? {end}"
    rows: list[tuple[int | None, str, list[list[str]]]] = [
        (None, "UNB", [["UNOA", "1"], ["BUYER"], ["SELLER"], ["240131", "2359"], ["77"]]),
        *_messages(rng, "UNH", "UNT", ("LIN", "FTX", "QTY")),
        (None, "UNZ", [["1"], ["77"]]),
    ]
    text = head + "".join(_line(tag, elements, marks) + end for _, tag, elements in rows)
    path = f"{place}.edi"
    Path(path).write_text(text)
    found: list[Found] = [
        (message, at + 1, tag, elements, None) for at, (message, tag, elements) in enumerate(rows)
    ]
    if head:
        found = [(m, n + 1, tag, e, r) for m, n, tag, e, r in found]
        found.insert(0, (None, 1, "UNA", [[f"{component}{element}.? {end}"]], None))
    return path, found


def _x12(rng: random.Random, place: Path) -> tuple[str, list[Found]]:
    marks = _Marks(rng.choice(":>"), rng.choice("*|"), rng.choice("~\n"), None)
    isa = ["00", " " * 10, "00", " " * 10, "ZZ", f"{'SENDER':15}", "ZZ", f"{'RECEIVER':15}"]
    isa += ["240101", "1200", "U", "00401", "000000001", "0", "P", marks.component]
    body: list[tuple[int | None, str, list[list[str]]]] = [
        *_messages(rng, "ST", "SE", ("N1", "PO1", "REF")),
        (None, "IEA", [["1"], ["000000001"]]),
    ]
    text = marks.element.join(["ISA", *isa]) + marks.end
    text += "".join(_line(tag, elements, marks) + marks.end for _, tag, elements in body)
    path = f"{place}.x12"
    Path(path).write_text(text)
    head: Found = (None, 1, "ISA", [[cell] for cell in isa], None)
    rest: list[Found] = [(m, at + 2, tag, e, None) for at, (m, tag, e) in enumerate(body)]
    return path, [head, *rest]


def _hl7(rng: random.Random, place: Path) -> tuple[str, list[Found]]:
    marks = _Marks("^", "|", "\r", "~")
    rows: list[Found] = []
    lines = []
    for message, tag, elements in _messages(rng, "MSH", "", ("PID", "OBX")):
        repeats = None
        if tag == "MSH":
            lines.append("MSH|^~\\&|SENDER|" + str(message))
            elements = [["|"], ["^~\\&"], ["SENDER"], [str(message)]]
        else:
            line = _line(tag, elements, marks)
            if rng.random() < 0.3:
                line += "~more^y"
                repeats = [{"element": len(elements), "components": ["more", "y"]}]
            lines.append(line)
        rows.append((message, len(rows) + 1, tag, elements, repeats))
    path = f"{place}.hl7"
    Path(path).write_text("".join(f"{line}\r" for line in lines or ["MSH|^~\\&|X"]))
    return path, rows or [(1, 1, "MSH", [["|"], ["^~\\&"], ["X"]], None)]
