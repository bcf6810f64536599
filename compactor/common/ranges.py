"""Writes ranges of figures for people."""

from __future__ import annotations


def range_text(low: str, high: str) -> str:
    """Joins two figures with their units: `0.6 to 0.8 s`; equal ones are one figure."""
    if low == high:
        return low
    number, _, unit = low.rpartition(" ")
    return f"{number if number and high.endswith(f' {unit}') else low} to {high}"
