"""The pool of worker processes: what becomes of cases that go wrong."""

from __future__ import annotations

import os
import signal
import time

import pytest

from tests.generated import pool
from tests.generated.pool import Progress, run


def check(seed: int) -> str | None:
    pool.count("cases")
    if seed == 3:
        return "three is wrong"
    if seed == 5:
        raise ValueError("five raises")
    if seed == 7:
        os.kill(os.getpid(), signal.SIGFPE)
    if seed == 9:
        time.sleep(600)
    if seed == 11:
        os.write(2, b"a last word")
        os.abort()
    if seed == 13:
        os._exit(7)
    return None


@pytest.mark.long
def test_a_case_that_fails_raises_dies_or_hangs_is_a_finding_and_the_others_go_on() -> None:
    seen: list[Progress] = []
    findings = run(check, range(20), processes=2, timeout_s=10, on_progress=seen.append)
    texts = {finding.seed: finding.text for finding in findings}
    assert sorted(texts) == [3, 5, 7, 9, 11, 13]
    assert texts[3] == "three is wrong"
    assert "ValueError: five raises" in texts[5]
    assert "SIGFPE" in texts[7]
    assert "no answer within 10 s" in texts[9] and "in check" in texts[9]
    assert "SIGABRT" in texts[11] and "a last word" in texts[11]
    assert "exit code 7" in texts[13]
    assert seen[-1].done == 20
    assert seen[-1].counts["cases"] == 20 - 4, "what a lost process counted is lost"
