"""The options of text files."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import click

from compactor.errors import UsageError
from compactor.files.text_options import PLAIN, TextOptions

_TAB = "\\t"


def csv_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options of text files, which `command` takes as `text`."""

    @click.option("--delimiter", metavar="CHARACTER", default=PLAIN.delimiter, show_default=True,
                  help="Separates the cells of CSV; a tab may be written as \\t.")  # fmt: skip
    @click.option("--quote", metavar="CHARACTER", default=PLAIN.quote, show_default=True,
                  help="Encloses cells of CSV; empty if quotes have no meaning.")  # fmt: skip
    @click.option("--decimal", metavar="CHARACTER", default=PLAIN.decimal, show_default=True,
                  help="Decimal mark of numbers in CSV: a point or a comma.")  # fmt: skip
    @click.option("--comment", metavar="CHARACTER", default=PLAIN.comment,
                  help="Lines of CSV that begin with it are skipped. By default none are.")  # fmt: skip
    @click.option("--header/--no-header", default=True, show_default=True,
                  help="Whether CSV begins with column names; otherwise they are c1, c2 ...")  # fmt: skip
    @click.option("--encoding", metavar="NAME", default=PLAIN.encoding, show_default=True,
                  help="Encoding of text files, such as latin-1, cp1252 or utf-16.")  # fmt: skip
    @wraps(command)
    def with_text_options(*args: Any, delimiter: str, **given: Any) -> Any:
        names = ("quote", "decimal", "comment", "header", "encoding")
        options = {name: given.pop(name) for name in names}
        delimiter = "\t" if delimiter == _TAB else delimiter
        try:
            text = TextOptions(delimiter=delimiter, **options)
        except ValueError as error:
            raise UsageError(str(error)) from None
        return command(*args, text=text, **given)

    return with_text_options
