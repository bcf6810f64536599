"""Entry point of the `compactor` command: groups the commands and prints each error as one line.

Exit codes: 0 done; 1 faults found, or the job failed; 2 wrong call; 3 bad file or damaged data; 4 store; 5
table missing or changed by others; 6 no memory or no thread; 130 interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import sys
import threading
from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NoReturn

import click

from compactor import __version__
from compactor.cli.commands import Commands, LazyCommands
from compactor.cli.output import fail
from compactor.cli.pipes import tolerate_closed_pipes
from compactor.cli.usage import usage_line
from compactor.common import interrupts, logs
from compactor.common.counts import counted
from compactor.common.foreign import shown
from compactor.common.logs import LogFormat, LogSettings
from compactor.common.shortage import shortage
from compactor.common.system_errors import cause_and_advice
from compactor.errors import CompactorError, MachineError
from lsm_fragment.errors import FormatError

_MAX_TOLD: Final = 20
"""Tell at most this many mistakes of a file."""
_BARE_LINE: Final = b"compactor: error: there is not enough memory; nothing unfinished is visible\n"
_EPILOG = """\b
Examples:
  compactor ingest ./logs app.ndjson.zst --sort-by service,host,timestamp:desc
  compactor inspect ./logs
  compactor compact ./logs --strategy full
  compactor verify ./logs
  compactor export ./logs all.parquet

\b
TABLE is a folder, s3://bucket/prefix (credentials and AWS_ENDPOINT_URL as for every AWS tool),
gs://bucket/prefix or az://container/prefix (docs/reference/stores.md).
A SIZE is bytes, or has a unit: 512MiB is 512 x 1024 x 1024 bytes, 512MB and 512M are 512,000,000.
Exit codes: 0 done, 1 faults found or job failed, 2 wrong call, 3 bad file or damaged data,
4 store, 5 table missing or changed by others, 6 no memory or no thread, 130 interrupted."""


def _show_version(context: click.Context, _: click.Parameter, is_wanted: bool) -> None:
    if is_wanted and not context.resilient_parsing:
        from compactor.table.protocol import PROTOCOL
        from lsm_fragment.blocks.layout import VERSION

        click.echo(
            f"compactor {__version__} (fragment format {VERSION}, table protocol {PROTOCOL})"
        )
        context.exit()


@click.group(
    cls=Commands,
    commands=LazyCommands(),
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """LSM compaction for columnar fragments on object storage.

    Ingest files as sorted fragments, compact them by a streaming k-way merge (one GET per input,
    bounded memory, Spark tasks), and read the result.
    """


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    tolerate_closed_pipes()
    # Py4J logs tracebacks of errors that we report in one line.
    logging.getLogger().addHandler(logging.NullHandler())
    logs.take_over_stderr()
    exit_code = run(sys.argv[1:] if arguments is None else list(arguments))
    if exit_code == MachineError.exit_code:
        # Shutting down the interpreter takes memory, too, and may crash without it.
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        os._exit(exit_code)
    _leave(exit_code)


def _leave(exit_code: int) -> NoReturn:
    """Ends the process, if possible without taking down each module and object, which takes an eighth of the
    time of a short command."""
    if not any(
        t for t in threading.enumerate() if not t.daemon and t is not threading.main_thread()
    ):
        atexit._run_exitfuncs()
        with contextlib.suppress(OSError, ValueError):
            for stream in filter(None, (sys.stdout, sys.stderr)):
                stream.flush()
            os._exit(exit_code)
    sys.exit(exit_code)


def run(arguments: Sequence[str]) -> int:
    """Runs the command line. Returns the exit code."""
    try:
        return _ended(arguments)
    except MemoryError:  # even reporting an error needs memory
        with contextlib.suppress(OSError):
            os.write(sys.__stderr__.fileno() if sys.__stderr__ else 2, _BARE_LINE)
        return MachineError.exit_code


def _ended(arguments: Sequence[str]) -> int:
    # Before parsing, so that usage errors have the format, too.
    logs.set_up(LogSettings(_requested_format(arguments)))
    try:
        result = _call(arguments)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _fail(usage_line(error, arguments), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted; nothing unfinished is visible", 130)
    except CompactorError as error:
        told = [error, *error.others]
        for mistake in told[:_MAX_TOLD]:
            _fail(mistake.message, mistake.exit_code)
        if (more := len(told) - _MAX_TOLD) > 0:
            _fail(f"and {counted(more, 'more mistake')}", error.exit_code)
        return error.exit_code
    except FormatError as error:
        return _fail(str(error), 3)
    except MemoryError:
        raise
    except OSError as error:
        # Stores and files wrap their own OSErrors, so this one comes from our output.
        cause = cause_and_advice(error)
        return _fail(f"cannot write the output: {cause}; what was committed before stays", 1)
    except Exception as error:  # noqa: BLE001 - reported in one line, with its traceback on request
        cause = " ".join(shown(error).split())[:400]
        return _fail(
            f"internal error: {cause} (COMPACTOR_DEBUG=1 shows where; please report it)",
            1,
            shows_where=bool(os.environ.get("COMPACTOR_DEBUG")),
        )
    return result if isinstance(result, int) else 0  # an int if a command asked for an exit code


def _requested_format(arguments: Sequence[str]) -> LogFormat:
    asked = ("--log-format", str(LogFormat.JSON))
    is_json = "=".join(asked) in arguments or asked in pairwise(arguments)
    return LogFormat.JSON if is_json else LogFormat.TEXT


def _call(arguments: Sequence[str]) -> object:
    with interrupts.delivered() as was_interrupted:
        try:
            result = cli.main(list(arguments), prog_name="compactor", standalone_mode=False)
            if was_interrupted():
                raise KeyboardInterrupt
            return result
        except Exception as error:
            if was_interrupted():
                raise KeyboardInterrupt from error
            lacks = None if isinstance(error, MachineError) else shortage(error)
            if lacks is None:
                raise
            error.__traceback__ = None  # frees what the frames reference
        raise MachineError(f"{lacks}; nothing unfinished is visible")


def _fail(message: str, exit_code: int, *, shows_where: bool = False) -> int:
    fail(message, shows_where=shows_where)
    return exit_code


if __name__ == "__main__":
    main()
