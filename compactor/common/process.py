"""Names this process for people and other machines."""

from __future__ import annotations

import os
import socket


def process_name() -> str:
    """Returns `host:pid`. On Kubernetes the host is the pod."""
    return f"{socket.gethostname()}:{os.getpid()}"
