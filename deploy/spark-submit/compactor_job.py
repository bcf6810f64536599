"""What spark-submit starts: the `compactor` command inside the submitted driver."""

from compactor.cli.main import main

main()
