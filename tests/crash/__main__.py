"""Many rounds of the crash loop: `python -m tests.crash --rounds 1000 [--seed N] [--store s3]`.

--minutes: runs for that time instead. --merges: on a table whose newest row of a key replaces the others.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from functools import partial

import pytest

from tests.conftest import s3_environment
from tests.crash.loop import CrashLoop, LostRowsError
from tests.support.s3_server import S3Server


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--store", choices=["local", "s3"], default="local")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--merges", action="store_true")
    options = parser.parse_args()
    with S3Server() as server, pytest.MonkeyPatch.context() as environment:
        s3_environment(server, environment)
        url = tempfile.mkdtemp(prefix="crash-loop-table-")
        if options.store == "s3":
            url = f"s3://{server.create_bucket('crash')}/table"
        loop = CrashLoop(url, options.seed, partial(print, flush=True), merges=options.merges)
        try:
            if options.minutes is None:
                loop.run(options.rounds)
            else:
                loop.run_for(60 * options.minutes)
        except LostRowsError as error:
            print(f"FOUND: {error}; table {url}, seed {options.seed}", file=sys.stderr)
            return 1
        print(
            f"clean: {loop.rounds} rounds, {loop.deaths} processes killed, {loop.readings} readings of "
            f"changes, table {url}"
        )
        return 0


if __name__ == "__main__":
    sys.exit(main())
