"""Google Cloud Storage and Azure Blob Storage: addresses, settings, and the words of messages about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, Self

from msgspec import Struct, field

from compactor.errors import UsageError
from compactor.resources.packages import Extra
from compactor.stores.keys import check_key


class Service(Struct, frozen=True, kw_only=True):
    """A service, and what a user has to know of it."""

    name: str
    container: str
    """Its word for what holds objects."""
    client: str
    """The class of `obstore.store`."""
    extra: Extra
    """The extra of this package that installs obstore."""
    credentials: str
    """What to set for credentials."""
    endpoint: str
    """The variable with the address of another server."""


GOOGLE: Final = Service(
    name="Google Cloud Storage",
    container="bucket",
    client="GCSStore",
    extra=Extra.GCS,
    credentials="set GOOGLE_APPLICATION_CREDENTIALS, or use the service account of the machine",
    endpoint="GOOGLE_BASE_URL",
)
AZURE: Final = Service(
    name="Azure Blob Storage",
    container="container",
    client="AzureStore",
    extra=Extra.AZURE,
    credentials="set AZURE_STORAGE_ACCOUNT_NAME, and AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN or "
    "a principal's AZURE_CLIENT_ID, AZURE_TENANT_ID and AZURE_CLIENT_SECRET, or use the managed identity",
    endpoint="AZURE_ENDPOINT",
)

_NAME: Final = r"[A-Za-z0-9$][A-Za-z0-9._-]*"
_ADDRESS: Final = re.compile(
    rf"(?P<root>(?:gs|az)://(?P<name>{_NAME}))(?:/(?P<prefix>.*))?", re.DOTALL
)
_DATA_LAKE: Final = re.compile(
    r"(?P<root>abfss://(?P<name>[a-z0-9$][a-z0-9-]{2,62})@(?P<account>[a-z0-9]{3,24})\.dfs\.core\.windows\.net)"
    r"(?:/(?P<prefix>.*))?",
    re.DOTALL,
)
_FORMS: Final = {
    "gs": "gs://bucket/prefix",
    "az": "az://container/prefix",
    "abfss": "abfss://container@account.dfs.core.windows.net/prefix",
}
SCHEMES: Final = tuple(_FORMS)


def is_data_lake(url: str) -> bool:
    """Returns whether an address has the form of `abfss:`, whose `@` stands behind a container, not a key."""
    return _DATA_LAKE.fullmatch(url) is not None


class Container(Struct, frozen=True, kw_only=True):
    """A bucket or container, and the prefix in it."""

    service: Service
    root: str
    """Its address, such as `gs://bucket`."""
    name: str
    prefix: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings of the client, which take the place of the environment's."""

    @classmethod
    def at(cls, url: str) -> Self:
        """Reads an address. Raises `UsageError`, which repeats nothing that may be a secret."""
        scheme = url.partition(":")[0]
        found = (_DATA_LAKE if scheme == "abfss" else _ADDRESS).fullmatch(url)
        if found is None:
            raise UsageError(f"{scheme}:...: not such an address; write {_FORMS[scheme]}")
        prefix = (found["prefix"] or "").removesuffix("/")
        if "?" in prefix or "#" in prefix:
            raise UsageError(
                f"{found['root']}/...: '?' and '#' have no meaning here; write {_FORMS[scheme]}"
            )
        return cls(
            service=GOOGLE if scheme == "gs" else AZURE,
            root=found["root"],
            name=found["name"],
            prefix=check_key(prefix) if prefix else "",
            settings={"account_name": found["account"]} if scheme == "abfss" else {},
        )
