"""The entry point for spark-submit: the `compactor` command in the submitted driver."""

from compactor.cli.main import main

main()
