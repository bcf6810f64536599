"""The exceptions of this package. A class exists if callers would handle it differently.

CompactorError                  base of all errors that a user can cause or see; `exit_code` is the CLI's
├── UsageError            (2)   an argument or option is wrong: correct the call
│   └── ConfigError       (2)   a setting is out of range or contradicts another
├── InputError            (3)   a user's file can't be read or does not fit the table
├── DataError             (3)   stored data is damaged or breaks an invariant
│   └── DamagedInputError       this fragment is damaged
├── StoreError            (4)   the store refused or could not be reached
│   ├── ObjectNotFoundError
│   │   └── FragmentMissingError    a fragment's object is proven to be gone
│   ├── ObjectExistsError       create-if-absent lost to an earlier object
│   ├── ObjectChangedError      an object was replaced while it was read
│   ├── PermissionDeniedError
│   ├── StoreUnreachableError   nothing was done, or nothing is known to have been done
│   └── UnknownOutcomeError     a write may or may not have happened: read back before retrying
├── TableError            (5)
│   ├── TableNotFoundError
│   ├── TableExistsError
│   ├── CommitConflictError     others kept winning the race for the next version
│   ├── BackPressureError       compactions did not catch up while a writer waited
│   ├── StaleAttemptError       the attempt stalled for so long that a vacuum has moved past it
│   ├── VersionNotFoundError    the table does not have this version, or no longer keeps it
│   ├── RestoreError            a version may not come back, because of what was done since
│   ├── ClockError              this machine's clock differs from the store's: nothing is stamped or removed
│   ├── OvertakenError          a vacuum removed what was being read
│   └── CompactionVoidError     inputs of a compaction are no longer live; its outputs are garbage
├── MachineError          (6)   the machine gave no memory or no thread: nothing unfinished is visible
└── JobError              (1)   work was tried and did not finish; nothing of it is visible
    └── EngineLostError         Spark has ended: this process can run nothing more on it

`lsm_fragment.errors.FormatError` (damaged or foreign fragments) is separate, since `lsm_fragment` never
imports `compactor`; the CLI maps it to exit code 3.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from compactor.common.foreign import shown
from compactor.common.message import Message


class CompactorError(Exception):
    """Base of all errors whose message is meant for the user.

    The message never quotes a server or a network library, which may repeat secrets: see
    `compactor.common.foreign`. The exception that caused it (`__cause__`) is left as it came. The message
    names settings by key, and each front shows its own names for them (`compactor.settings.names`).
    """

    exit_code = 1
    others: Sequence[CompactorError] = ()
    """Mistakes that were found beside this one, in other parts of the same file; no part of `message`."""

    def __init__(self, *parts: str) -> None:
        """parts: texts, settings and messages, which are joined."""
        super().__init__(Message(*parts))

    def reword(self, change: Callable[[Message], str]) -> None:
        """Changes the message, and those of the other mistakes."""
        for error in (self, *self.others):
            error.args = (change(error.message),)

    @property
    def message(self) -> Message:
        return Message(self.args[0])


def message_of(error: Exception) -> Message:
    """Returns the message of any error, or what may be shown of it."""
    return error.message if isinstance(error, CompactorError) else Message(shown(error))


class UsageError(CompactorError):
    """The call itself is wrong."""

    exit_code = 2


class ConfigError(UsageError):
    """A setting is out of range, or two settings contradict each other."""


class InputError(CompactorError):
    """A file given by the user cannot be read, or does not fit the table."""

    exit_code = 3


class DataError(CompactorError):
    """Stored data is damaged or breaks an invariant of the table."""

    exit_code = 3


class DamagedInputError(DataError):
    """A fragment is damaged, or differs from its entry in the table's log; `name` is the object's."""

    def __init__(self, *parts: str, name: str = "") -> None:
        super().__init__(*parts)
        self.name = name


class StoreError(CompactorError):
    """The store refused, failed, or was not reachable."""

    exit_code = 4


class ObjectNotFoundError(StoreError):
    """No object has this key."""


class FragmentMissingError(ObjectNotFoundError):
    """The object of a fragment (`name`) of a version that is kept, or of its deleted rows, is proven to be
    gone."""

    def __init__(self, *parts: str, name: str = "") -> None:
        super().__init__(*parts)
        self.name = name


class ObjectExistsError(StoreError):
    """Create-if-absent found an object with this key."""


class ObjectChangedError(StoreError):
    """The object's ETag has changed: it was replaced."""


class PermissionDeniedError(StoreError):
    """The credentials in use do not allow the operation."""


class StoreUnreachableError(StoreError):
    """The endpoint did not answer, or the connection broke before an answer."""


class UnknownOutcomeError(StoreError):
    """A write was sent and its outcome is unknown; read back before trying again."""


class TableError(CompactorError):
    """The table is not in the state that the operation needs."""

    exit_code = 5


class TableNotFoundError(TableError):
    """There is no table at this address."""


class TableExistsError(TableError):
    """A table is already at this address."""


class CommitConflictError(TableError):
    """Other writers kept winning the race for the next version."""


class BackPressureError(TableError):
    """Compactions did not catch up within a writer's maximum wait."""


class StaleAttemptError(TableError):
    """A vacuum has moved past the version that the attempt was based on; nothing was changed."""


class VersionNotFoundError(TableError):
    """The table does not have this version, or no longer keeps it."""


class RestoreError(TableError):
    """A version, or inputs of a compaction, may not come back: values were redacted or rows changed since."""


class ClockError(TableError):
    """This machine's clock differs too much from the store's, or from the time of the last commit."""


class OvertakenError(TableError):
    """A vacuum removed what was being read: the version is no longer kept."""


class CompactionVoidError(TableError):
    """Inputs of a compaction are no longer live, so its outputs must not be committed."""


class MachineError(CompactorError):
    """The machine ran out of memory or threads; neither the data nor the call is at fault."""

    exit_code = 6


class JobError(CompactorError):
    """Work was tried and did not finish; nothing of it became visible."""


class EngineLostError(JobError):
    """The engine that ran the work has ended and cannot be restarted in this process."""
