"""Options that say what a table is published as."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click
from msgspec import Struct

from compactor.cli.shared_options import option_type
from compactor.cli.tables import open_log
from compactor.lakes.lake import LakeKind, parse_levels
from compactor.lakes.open import open_publisher
from compactor.lakes.publish import Publisher


class LakeChoice(Struct, frozen=True):
    """What a table is published as, and where it is named."""

    kind: LakeKind | None
    min_level: int
    catalog: str | None
    name: str | None

    @property
    def is_given(self) -> bool:
        return self != LakeChoice(None, 0, None, None)

    def publisher(self, table: str, destination: str, **options: Any) -> Publisher:
        """Opens a publisher with a log of its own. Raises what `open_publisher` raises."""
        assert self.kind is not None, "the option is required"
        return open_publisher(
            open_log(table),
            destination,
            self.kind,
            catalog=self.catalog,
            name=self.name,
            min_level=self.min_level,
            **options,
        )


def lake_options(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Adds --as, --levels, --catalog and --name, which the command takes as one `LakeChoice`."""

    def added(command: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(command)
        def with_choice(
            *args: Any,
            kind: str | None,
            levels: int,
            catalog: str | None,
            name: str | None,
            **options: Any,
        ) -> Any:
            known = None if kind is None else LakeKind(kind)
            return command(*args, lake=LakeChoice(known, levels, catalog, name), **options)

        with_choice = click.option(
            "--name",
            metavar="NAMESPACE.TABLE",
            help="Name of the Iceberg table in its catalog.  [default: published.NAME, by the last part of "
            "DESTINATION]",
        )(with_choice)
        with_choice = click.option(
            "--catalog",
            metavar="NAME",
            help="Iceberg catalog of pyiceberg's configuration.  [default: catalog.db in DESTINATION]",
        )(with_choice)
        with_choice = click.option(
            "--levels",
            type=option_type(parse_levels),
            metavar="N+",
            default="0+",
            show_default=True,
            help="Publish only the fragments of these levels: 1+ leaves out what came in since the last "
            "compactions, and writes each row less often.",
        )(with_choice)
        return click.option(
            "--as",
            "kind",
            type=click.Choice([str(kind) for kind in LakeKind]),
            required=required,
            help="What other engines find at DESTINATION.",
        )(with_choice)

    return added
