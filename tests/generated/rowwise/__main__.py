import sys

from tests.generated.pool import main
from tests.generated.rowwise import __doc__ as what
from tests.generated.rowwise.check import TIMEOUT_S, check

if __name__ == "__main__":
    sys.exit(main(check, what or "", "tests.generated.rowwise", TIMEOUT_S, noun="graphs"))
