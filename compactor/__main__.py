"""Runs the command in this interpreter: `python -m compactor`."""

from compactor.cli.main import main

if __name__ == "__main__":
    main()
