import argparse
import sys

from tests.generated.graphs import __doc__ as what
from tests.generated.graphs.check import TIMEOUT_S, check
from tests.generated.pool import main

if __name__ == "__main__":
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--spark", type=int)
    parser.add_argument("--start", type=int, default=0)
    options, _ = parser.parse_known_args()
    if options.spark is not None:
        from tests.generated.graphs import spark

        sys.exit(spark.run(range(options.start, options.start + options.spark)))
    sys.exit(main(check, what or "", "tests.generated.graphs", TIMEOUT_S, noun="graphs"))
