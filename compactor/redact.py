"""What must not be read in logs, metrics and messages: passwords in addresses, keys in the environment."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import unquote

HIDDEN: Final = "***"

_USER_INFO: Final = re.compile(
    r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}://)(?:"
    # A secret key of AWS may have slashes in it, a password an `@`: so up to the last one, unless another
    # address begins before; the bound keeps the search linear. A port, which may be that of an IPv6 address,
    # has no `@` after it but in a path.
    r"(?!\[[0-9A-Fa-f:.]+\](?:[:/\s]|$))[^/\s:]*:(?!\d{1,5}(?:[/\s]|$))[^\s@]{0,4096}@(?:(?:(?!://)[^\s@])*@)*"
    r"|[^/\s:]+@)"
)
_USER_INFO_OF_ADDRESS: Final = re.compile(
    # Of a text that is one address and nothing else: with blanks in the password, too.
    r"(?s)^([A-Za-z][A-Za-z0-9+.-]*://)(?!\[[0-9A-Fa-f:.]+\](?:[:/]|$))[^/]*:(?!\d{1,5}(?:/|$)).*@"
)
_SECRET_PARAMETER: Final = re.compile(
    r"(?i)(x-amz-(?:signature|credential|security-token)=|awsaccesskeyid=|[?&;](?:signature|sig|token|"
    r"access_token|api_?key|password|secret)=)[^&;\s'\"<>]+"
)
_SECRET_NAME: Final = re.compile(r"(?i)secret|password|token|api_?key|_headers$")
_OWN_KEYS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_LEAST_LENGTH: Final = 8
"""Shorter values are words that anything may contain, such as the `test` of emulators."""


def redacted(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text without secrets: user and password of addresses, signatures in them, and what the
    environment calls a secret, password, token or headers."""
    for secret in _secrets(environment):
        text = text.replace(secret, HIDDEN)
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    return _SECRET_PARAMETER.sub(rf"\1{HIDDEN}", text)


def redacted_address(address: str, environment: Mapping[str, str] = os.environ) -> str:
    """The same of a text that is one address, whatever its password is made of."""
    return redacted(_USER_INFO_OF_ADDRESS.sub(rf"\1{HIDDEN}@", address), environment)


def has_secret(address: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether an address has a user, a password, a signature or this process's own keys of AWS in it.

    What else the environment calls a secret may be a word like others, and a bucket's name.
    """
    own = {name: environment[name] for name in _OWN_KEYS if name in environment}
    return redacted_address(address, own) != address


def redacted_value(value: Any) -> Any:
    """The same of all texts in a value of JSON."""
    match value:
        case str():
            return redacted(value)
        case Mapping():
            return {key: redacted_value(item) for key, item in value.items()}
        case list() | tuple():
            return [redacted_value(item) for item in value]
        case _:
            return value


def _secrets(environment: Mapping[str, str]) -> list[str]:
    """Longest first: one may be part of another."""
    found: set[str] = set()
    for name, value in environment.items():
        if not _SECRET_NAME.search(name) or value.startswith(("/", "file:")):  # a path to one
            continue
        if name.lower().endswith(
            "_headers"
        ):  # of OpenTelemetry: name=value,name=value, quoted as in URLs
            values = [item.partition("=")[2] for item in value.split(",")]
            found.update(values + [unquote(item) for item in values])
        else:
            found.add(value)
    return sorted((s for s in found if len(s) >= _LEAST_LENGTH), key=len, reverse=True)
