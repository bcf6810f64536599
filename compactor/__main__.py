"""`python -m compactor`: the command, by this very interpreter."""

from compactor.cli.main import main

if __name__ == "__main__":
    main()
