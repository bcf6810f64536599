"""The bench of row policies runs, and its figures are of the rows that it says."""

from __future__ import annotations

import json

from bench import bench_row_policies


def test_all_policies_and_others_keep_the_same_keys(tmp_path, monkeypatch, capsys) -> None:
    out = tmp_path / "results.json"
    monkeypatch.setattr(
        "sys.argv", ["bench", "--rows", "8000", "--inputs", "4", "--results", str(out)]
    )
    bench_row_policies.main()
    cases = {case["case"]: case for case in json.loads(out.read_text())["cases"]}
    keys = {k for table in bench_row_policies.updates(8000, 4) for k in table["id"].to_pylist()}
    assert cases["append"]["rows_out"] == 8000
    for name in ("last", "last by sequence", "partial-update", "aggregate"):
        assert cases[name]["rows_out"] == len(keys)
    assert cases["last, tombstones"]["rows_out"] < len(keys)
    assert all(case["rows_out"] == len(keys) for name, case in cases.items() if "newest" in name)
    assert "aggregate" in capsys.readouterr().out
