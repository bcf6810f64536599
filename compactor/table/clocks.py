"""Decides how far this machine's clock is trusted: it stamps commits, and old rows expire by it.

The store's clock is the witness. Where it belongs to another machine, as on S3, it confirms this machine's
clock. A folder may be on this machine's own disk: there, only the log shows that the clock has jumped.
"""

from __future__ import annotations

import os
from typing import Final

from compactor.errors import ClockError
from compactor.settings.units import duration_text
from compactor.stores.base import StoreTime

MAX_SKEW_SECONDS: Final = 15 * 60
"""Limit on the difference of this machine's clock from the store's. S3 itself refuses requests beyond it."""
MAX_QUIET_SECONDS: Final = 30 * 86_400
"""The longest time since the last commit after which rows expire by this machine's clock alone."""
TRUST_VARIABLE: Final = "COMPACTOR_TRUST_CLOCK"


def commit_stamp(
    now_unix_ms: int, store_time: StoreTime | None, last_unix_ms: int, url: str
) -> int:
    """Returns the time of a commit in Unix ms: this machine's, but not before the last commit's.

    If the last commit's time lies in the future, it is ignored and this machine's time counts for both.
    Raises `ClockError` if the store's clock differs too much from this machine's.
    """
    _check_skew(now_unix_ms, store_time, url)
    is_plausible = last_unix_ms - now_unix_ms <= MAX_SKEW_SECONDS * 1000
    return max(now_unix_ms, last_unix_ms) if is_plausible else now_unix_ms


def check_expiry(
    now_unix_ms: int, store_time: StoreTime | None, last_unix_ms: int, url: str
) -> None:
    """Checks this machine's clock before rows expire by it. last_unix_ms: the last commit's time.

    Raises `ClockError` if the store's clock differs too much from it, or if no other clock confirms that so
    much time has passed since the last commit.
    """
    _check_skew(now_unix_ms, store_time, url)
    quiet_ms = now_unix_ms - last_unix_ms
    is_confirmed = store_time is not None and store_time.is_independent
    if quiet_ms > MAX_QUIET_SECONDS * 1000 and not is_confirmed and not _is_trusted():
        raise ClockError(
            f"{url}: by this machine's clock the last commit is {duration_text(quiet_ms / 1000)} old, and no "
            "other clock confirms that; rows would expire by it for good, so nothing was done. If the clock "
            f"is right, set {TRUST_VARIABLE}=1 for this run; otherwise correct the clock"
        )


def lease_time(now_unix_ms: int, store_time: StoreTime | None) -> int:
    """Returns the time by which leases of a table are made and judged.

    It is the store's, because that is one clock for all workers. A worker whose own clock is some minutes
    ahead, which is within the bound, would otherwise take the leases of others.
    """
    return now_unix_ms if store_time is None or _is_trusted() else store_time.unix_ms


def _check_skew(now_unix_ms: int, store_time: StoreTime | None, url: str) -> None:
    if store_time is None or _is_trusted():
        return
    ahead_ms = now_unix_ms - store_time.unix_ms
    if abs(ahead_ms) > MAX_SKEW_SECONDS * 1000:
        apart = duration_text(abs(ahead_ms) / 1000)
        which = "ahead of" if ahead_ms > 0 else "behind"
        raise ClockError(
            f"{url}: this machine's clock is {apart} {which} the store's, "
            f"{duration_text(MAX_SKEW_SECONDS)} is the most allowed; nothing was changed. Correct this "
            f"machine's clock, or, if the store's is wrong, set {TRUST_VARIABLE}=1"
        )


def _is_trusted() -> bool:
    return os.environ.get(TRUST_VARIABLE) == "1"
