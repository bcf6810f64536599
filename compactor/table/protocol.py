"""The version of the table protocol, which `--version` shows without any other import."""

from typing import Final

PROTOCOL: Final = 1
"""The protocol of log files and checkpoints. A program refuses a newer one than it knows."""
