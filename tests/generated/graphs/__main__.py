import sys

from tests.generated.graphs import __doc__ as what
from tests.generated.graphs.check import TIMEOUT_S, check
from tests.generated.pool import main

if __name__ == "__main__":
    sys.exit(main(check, what or "", "tests.generated.graphs", TIMEOUT_S, noun="graphs"))
