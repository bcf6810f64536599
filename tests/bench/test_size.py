"""The bench of sizes, at a size that takes seconds."""

from __future__ import annotations

import json
import sys

from bench import bench_size
from bench.workload import SCHEMA


def test_every_column_is_measured_beside_parquet(tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "size.json"
    arguments = ["--rows", "3000", "--inputs", "3", "--results", str(out)]
    monkeypatch.setattr(sys, "argv", ["bench_size", *arguments])
    bench_size.main()
    cases = json.loads(out.read_text())["cases"]
    assert {case["column"] for case in cases} == set(SCHEMA.names)
    assert all(case["rows"] == 3000 for case in cases)
    assert all(case["is_worse"] == bench_size.is_worse(case) for case in cases)
    assert "columns that are more than 5% larger than in Parquet: " in capsys.readouterr().out
