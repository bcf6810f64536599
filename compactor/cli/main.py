"""Entry point of the `compactor` command: groups the commands and prints each error as one line.

Exit codes: 0 done; 1 faults found, or the job failed; 2 wrong call; 3 bad file or damaged data; 4 store; 5
table missing or changed by others; 130 interrupted.
"""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Sequence

import click

from compactor import __version__
from compactor.cli.alter import alter_command
from compactor.cli.compact import compact_command, plan_command, watch_command
from compactor.cli.delete import delete_command
from compactor.cli.entity import entity_merge_command
from compactor.cli.interrupts import terminated_as_interrupted
from compactor.cli.look import inspect_command, verify_command
from compactor.cli.maintain import release_command, repair_command, vacuum_command
from compactor.cli.output import fail
from compactor.cli.read import export_command, head_command, query_command
from compactor.cli.report import report_command
from compactor.cli.run import run_command
from compactor.cli.simulate import simulate_command
from compactor.cli.write import ingest_command
from compactor.common import logs
from compactor.common.lines import one_line
from compactor.common.logs import LogSettings
from compactor.common.redact import redacted
from compactor.common.system_errors import cause_and_advice
from compactor.errors import CompactorError
from compactor.table.version import PROTOCOL
from format.errors import FormatError
from format.layout import VERSION as FORMAT_VERSION

_EPILOG = """\b
Examples:
  compactor ingest ./logs app.ndjson.zst --sort-by service,host,timestamp:desc
  compactor inspect ./logs
  compactor compact ./logs --full
  compactor verify ./logs
  compactor export ./logs all.parquet

\b
TABLE is a folder or s3://bucket/prefix (credentials and AWS_ENDPOINT_URL as for every AWS tool).
Exit codes: 0 done, 1 faults found or job failed, 2 wrong call, 3 bad file or damaged data,
4 store, 5 table missing or changed by others, 130 interrupted."""


@click.group(epilog=_EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__,
    prog_name="compactor",
    message=f"%(prog)s %(version)s (fragment format {FORMAT_VERSION}, table protocol {PROTOCOL})",
)
def cli() -> None:
    """LSM compaction for columnar fragments on object storage.

    Ingest files as sorted fragments, compact them by a streaming k-way merge (one GET per input,
    bounded memory, Spark tasks), and read the result.
    """


for _command in (
    ingest_command,
    compact_command,
    plan_command,
    watch_command,
    export_command,
    head_command,
    query_command,
    run_command,
    entity_merge_command,
    alter_command,
    delete_command,
    inspect_command,
    report_command,
    verify_command,
    vacuum_command,
    repair_command,
    release_command,
    simulate_command,
):
    cli.add_command(_command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the command line and exits."""
    # Py4J logs tracebacks of errors that we report in one line ourselves.
    logging.getLogger().addHandler(logging.NullHandler())
    sys.exit(run(sys.argv[1:] if arguments is None else list(arguments)))


def run(arguments: Sequence[str]) -> int:
    """Runs the command line. Returns the exit code."""
    logs.set_up(LogSettings())
    try:
        result = _call(arguments)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        # The message repeats what the user gave, which may hold secrets; the usage around it is ours.
        message = error.format_message()
        text = shown.getvalue().replace(message, one_line(message))
        click.echo(redacted(text), err=True, nl=False)
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return _fail("interrupted; nothing unfinished is visible", 130)
    except CompactorError as error:
        return _fail(str(error), error.exit_code)
    except FormatError as error:
        return _fail(str(error), 3)
    except BrokenPipeError:
        # The reader of our output has gone, as after `| head`: print nothing, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:
        # Stores and files report their own OSErrors, so this one comes from our output.
        return _fail(f"cannot write the output: {cause_and_advice(error)}", 1)
    except Exception as error:  # noqa: BLE001 - reported in one line, with its traceback on request
        cause = " ".join(str(error).split())[:400]
        return _fail(
            f"internal error: {type(error).__name__}: {cause} (COMPACTOR_DEBUG=1 shows where; please "
            "report it)",
            1,
            shows_where=bool(os.environ.get("COMPACTOR_DEBUG")),
        )
    return result if isinstance(result, int) else 0  # an int if a command asked for an exit code


def _call(arguments: Sequence[str]) -> object:
    with terminated_as_interrupted() as was_interrupted:
        try:
            return cli.main(list(arguments), prog_name="compactor", standalone_mode=False)
        except Exception as error:
            if was_interrupted():
                raise KeyboardInterrupt from error
            raise


def _fail(message: str, exit_code: int, *, shows_where: bool = False) -> int:
    fail(message, shows_where=shows_where)
    return exit_code


if __name__ == "__main__":
    main()
