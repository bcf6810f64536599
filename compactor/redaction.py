"""Texts without secrets: for whatever is printed, logged or stored in a table."""

from __future__ import annotations

import os
import re
from typing import Final

HIDDEN: Final = "***"
_SECRET_VARIABLES: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_LEAST_CHARACTERS: Final = 8
"""Shorter ones are no secrets, and would be found in every other word."""
_USER: Final = re.compile(
    # A secret key of AWS may have slashes in it; a port has none of its digits before an `@` but a path.
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)"
    r"(?:[^/\s:@]*:(?!\d{1,5}(?:[/\s]|$))[^\s@]*|[^/\s:@]+)@"
)
_PARAMETER: Final = re.compile(
    r"(?P<name>X-Amz-(?:Signature|Credential|Security-Token)=|AWSAccessKeyId=|(?<=[?&])Signature=|(?<=[?&])sig=)"
    r"[^&\s\"'<>]+",
    re.IGNORECASE,
)


def redacted(text: str) -> str:
    """Without user and password in addresses, without what signs a presigned one, without this process's
    own keys."""
    text = _USER.sub(rf"\g<scheme>{HIDDEN}@", text)
    text = _PARAMETER.sub(rf"\g<name>{HIDDEN}", text)
    for variable in _SECRET_VARIABLES:
        secret = os.environ.get(variable, "")
        if len(secret) >= _LEAST_CHARACTERS:
            text = text.replace(secret, HIDDEN)
    return text
