"""Removes secrets from logs, metrics and messages: passwords, keys, and what authorizes requests."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from compactor.common.secret_forms import places

HIDDEN: Final = "***"

_SCHEME_END: Final = r":\\{0,8}/\\{0,8}/"
"""End of an address's scheme; JSON may escape slashes."""
_USER_INFO: Final = re.compile(
    rf"(\b[A-Za-z][A-Za-z0-9+.-]{{0,30}}{_SCHEME_END})(?:"
    # A secret key of AWS may contain slashes, a password an `@`: so match up to the last `@`, unless another
    # address begins before it; the bound keeps the search linear. After a port, which may be that of an IPv6
    # address, an `@` is part of a path.
    r"(?!\[[0-9A-Fa-f:.]+\](?:[:/\s]|$))[^/\s:]*:(?!\d{1,5}(?:[/\s]|$))[^\s@]{0,4096}@(?:(?:(?!://)[^\s@])*@)*"
    r"|[^/\s:]+@)"
)
_ENCODED_USER_INFO: Final = re.compile(
    # The same for an address that is a percent-encoded parameter of another one.
    r"(\b[A-Za-z][A-Za-z0-9+.-]{0,30}%(?:25)*3[Aa](?:%(?:25)*2[Ff]){2})"
    r"(?:(?!%(?:25)*2[Ff])[^\s&@\"'<>]){1,4096}%(?:25)*40"
)
_USER_INFO_OF_ADDRESS: Final = re.compile(
    # For a text that is one address and nothing else; here the password may have blanks.
    r"(?s)^([A-Za-z][A-Za-z0-9+.-]*://)(?!\[[0-9A-Fa-f:.]+\](?:[:/]|$))[^/]*:(?!\d{1,5}(?:/|$)).*@"
)
_EQUALS: Final = r"(?:=|%(?:25)*3d|\\{1,8}u003d)"
_SECRET_PARAMETER: Final = re.compile(
    rf"(?i)(x-amz-(?:signature|credential|security-token){_EQUALS}|awsaccesskeyid{_EQUALS}"
    r"|(?:[?&;]|%(?:25)*(?:3f|26|3b)|\\{1,8}u0026)(?:signature|sig|token|"
    rf"access_token|api_?key|password|secret){_EQUALS})(?:(?!%(?:25)*26|\\{{1,8}}u0026)[^&;\s'\"<>])+"
)
_SECRET_HEADER_NAME: Final = r"(?:proxy-)?authorization|x-amz-security-token|x-api-key"
_TOKEN: Final = r"[^\s,;\"'<>()\[\]{}]+"
_FOLD: Final = r"(?:\r?\n(?:[ \t]+|(?=[A-Za-z0-9+/=_.~-]{2,512}[ \t]*(?:\r?\n|$))))"
"""A line end within a value: the next line is indented, or a single word, which continues the value."""
_SECRET_HEADER: Final = re.compile(
    rf"(?i)(?<![\w-])((?:{_SECRET_HEADER_NAME})\\{{0,8}}[\"']?[ \t]{{0,8}}[:,=][ \t]{{0,8}})(?:"
    # In quotes: all between them.
    r"(b?\\{0,8}(?P<quote>[\"']))(?:(?!\\{0,8}(?P=quote)).){1,8192}"
    # A signature or a digest: names and values.
    rf"|(?P<scheme>(?:AWS4-[A-Z0-9-]+|Digest)[ \t]+){_TOKEN}"
    rf"(?:\"[^\"\r\n]*\"|{_TOKEN}|[,;](?=\S)|[,;](?:[ \t]|{_FOLD})+(?=[\w-]+=)|{_FOLD})*"
    # A scheme and one word.
    rf"|(?P<one>(?:Basic|Bearer|Token|Negotiate|NTLM|ApiKey|AWS)[ \t]+){_TOKEN}(?:{_FOLD}{_TOKEN})*"
    # Anything else is one word, unless it is in lower case, as in ordinary text.
    rf"|(?-i:(?![a-z]+(?:[\s.,;)]|$))){_TOKEN}(?:{_FOLD}{_TOKEN})*)"
)
_BEARER: Final = re.compile(
    # Without a header's name before it: a long word that does not look like ordinary text.
    r"(?i)\b((?:bearer|basic)[ \t]+)(?=[A-Za-z.-]*[0-9+/=_~])[A-Za-z0-9+/=._~-]{12,}"
)
_SECRET_NAME: Final = re.compile(
    r"(?i)secret|password|passwd|passphrase|token|credential|api_?key|private_?key|_pwd$|_pass$|_headers$"
    r"|authorization$"
)
_OWN_KEYS: Final = ("AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_PLACE_NAME: Final = re.compile(r"(?i)_(?:file|path|dir|directory|uri|url|endpoint)$")
"""Names of variables that say where a secret is stored."""
_MIN_LENGTH: Final = 8
"""Shorter values are ordinary words, such as the `test` of emulators."""
_MIN_GIVEN_LENGTH: Final = 4


def redacted(
    text: str, environment: Mapping[str, str] = os.environ, also: Iterable[str] = ()
) -> str:
    """Returns the text with its secrets replaced by `***`.

    Secrets are user, password and signature in addresses, headers that authorize, and, in any encoding, the
    variables of the environment named secret, password, token, headers and the like. also: more secrets,
    which may be shorter than those of the environment.
    """
    given = (secret for secret in also if len(secret) >= _MIN_GIVEN_LENGTH)
    if secrets := [*_secrets(environment), *given]:
        text = _without(text, secrets)
    text = _USER_INFO.sub(rf"\1{HIDDEN}@", text)
    text = _ENCODED_USER_INFO.sub(rf"\1{HIDDEN}%40", text)
    text = _SECRET_HEADER.sub(_header, text)
    text = _BEARER.sub(rf"\1{HIDDEN}", text)
    return _SECRET_PARAMETER.sub(rf"\1{HIDDEN}", text)


def _without(text: str, secrets: Iterable[str]) -> str:
    data = text.encode("utf-8", "surrogatepass")
    found = places(data, (secret.encode("utf-8", "surrogatepass") for secret in secrets))
    if not found:
        return text
    pieces, done = [], 0
    for begin, end in found:
        pieces += [data[done:begin], HIDDEN.encode()]
        done = end
    return b"".join((*pieces, data[done:])).decode("utf-8", "surrogatepass")


def _header(match: re.Match[str]) -> str:
    return f"{match[1]}{match[2] or match['scheme'] or match['one'] or ''}{HIDDEN}"


def redacted_address(address: str, environment: Mapping[str, str] = os.environ) -> str:
    """Does the same for a text that is one address, whatever characters its password has."""
    return redacted(_USER_INFO_OF_ADDRESS.sub(rf"\1{HIDDEN}@", address), environment)


def has_secret(address: str, environment: Mapping[str, str] = os.environ) -> bool:
    """Returns whether an address has a user, a password, a signature or this process's own AWS keys.

    Other secrets of the environment are ignored: they may be ordinary words, and a bucket's name.
    """
    own = {name: environment[name] for name in _OWN_KEYS if name in environment}
    return redacted_address(address, own) != address


def redacted_value(value: Any) -> Any:
    """Removes the secrets from all texts in a JSON value."""
    match value:
        case str():
            return redacted(value)
        case Mapping():
            return {
                key: HIDDEN if _is_secret_header(key) else redacted_value(item)
                for key, item in value.items()
            }
        case list() | tuple():
            return [redacted_value(item) for item in value]
        case _:
            return value


def _is_secret_header(key: Any) -> bool:
    return isinstance(key, str) and bool(re.fullmatch(_SECRET_HEADER_NAME, key, re.IGNORECASE))


def _secrets(environment: Mapping[str, str]) -> list[str]:
    """Returns the secrets of the environment, sorted."""
    found: set[str] = set()
    for name, value in environment.items():
        if name not in _OWN_KEYS and not _is_secret(name, value):
            continue
        if name.lower().endswith(
            "_headers"
        ):  # OpenTelemetry's form: name=value,name=value, quoted as in URLs.
            values = [item.partition("=")[2] for item in value.split(",")]
            found.update(values + [unquote(item) for item in values])
        else:
            found.add(value)
    return sorted(secret for secret in found if len(secret) >= _MIN_LENGTH)


def _is_secret(name: str, value: str) -> bool:
    """Returns whether a variable is a secret, not the path of one; a key may also begin with a slash."""
    if not _SECRET_NAME.search(name) or _PLACE_NAME.search(name) or value.startswith("file:"):
        return False
    return not (value.startswith("/") and os.path.lexists(value))
