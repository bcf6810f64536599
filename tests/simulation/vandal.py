"""What a broken disk, a careless operator or a stranger with a writer's key does to stored objects.

Nothing that only one object holds is promised to outlast the loss of that object, so two kinds of damage
are told apart: such as the table must live with, because other objects say the same, and such as it has to
refuse until the object is restored from a backup (`hurts`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from msgspec.structs import replace

from compactor.table.checkpoint import checkpoint_bytes
from compactor.table.fragments import FragmentMap
from compactor.table.object_names import (
    CHECKPOINT_PREFIX,
    DATA_PREFIX,
    LOG_PREFIX,
    checkpoint_key,
    fragment_key,
    is_deletions_key,
    is_fragment_key,
    parse_checkpoint,
    parse_floor,
    parse_version,
    version_key,
)
from compactor.table.snapshot import Snapshot
from compactor.table.version import Changes, Operation, Version
from tests.faults import worse
from tests.simulation.store import SharedObjects

FAR = 10**15
_YEAR_MS = 365 * 86_400_000


class Vandal:
    def __init__(self, random: Random, shared: SharedObjects, note: Callable[[str], None]) -> None:
        self._random, self._shared, self._note = random, shared, note
        self.strays: set[str] = set()
        """Keys of objects put where nothing was."""
        self.originals: dict[str, bytes] = {}
        """What was where something is damaged that nothing else holds."""
        self.lost: dict[str, bytes] = {}
        """Fragments that are gone, with what was in them."""
        self.once_lost: set[str] = set()
        """These, and those that have been restored: who missed one may say so later."""
        self.was_here = False
        self.hurts = False
        """Whether the table has been damaged, at some time, so that it may refuse to be read."""

    def forget(self, key: str) -> bool:
        """An object of that name was written or removed by a program; whether it was damaged or a stray."""
        is_stray = key in self.strays
        self.lost.pop(key, None)
        self.strays.discard(key)
        return self.originals.pop(key, None) is not None or is_stray

    def restored(self, objects: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """As if all was repaired that the table may refuse."""
        if not self.hurts:
            return objects
        left = {key: data for key, data in objects.items() if key not in self.strays}
        return left | self.originals

    def restore(self) -> None:
        """Restores it in truth: what an operator does who reads the messages."""
        for key, data in self.originals.items():
            self._note(f"restored {key}")
            self._shared.set(key, data)
        self.originals.clear()

    def take_strays_away(self) -> None:
        for key in self.strays:
            self._note(f"removed {key}")
            self._shared.remove(key)
        self.strays.clear()

    def give_back(self, key: str) -> None:
        """A lost object is restored from a backup."""
        self._note(f"restored {key}")
        self._shared.set(key, self.lost.pop(key))

    # --- damage ---

    def lose_fragment(self, snapshot: Snapshot) -> str | None:
        """Removes a live fragment for good. Its key; None if there is none."""
        live = [key for key in snapshot.fragments if key in self._shared.objects]
        live = [key for key in live if key not in self.originals]
        if not live:
            return None
        key = self._random.choice(live)
        self._note(f"vandal: {key} is lost")
        self.lost[key] = self._shared.objects[key]
        self.once_lost.add(key)
        self._shared.remove(key)
        self.was_here = True
        return key

    def replace_newest(self, snapshot: Snapshot) -> str | None:
        """Puts an older log file in the place of the newest one. Its key; None if there is no older one."""
        newest = version_key(snapshot.version)
        keys = [key for key in self._shared.keys(LOG_PREFIX) if key not in self.strays]
        older = [key for key in keys if parse_version(key) is not None and key < newest]
        if not older or newest not in keys or newest in self.originals:
            return None
        self.originals[newest] = self._shared.objects[newest]
        self._set(newest, self._shared.objects[self._random.choice(older)])
        self.hurts = True
        return newest

    def damage_fragment(self) -> str | None:
        """Its key; None if there is none."""
        return self._damage([*filter(is_fragment_key, self._shared.keys(DATA_PREFIX))])

    def damage_deletions(self) -> str | None:
        return self._damage([*filter(is_deletions_key, self._shared.keys(DATA_PREFIX))])

    def damage_log_file(self) -> str | None:
        return self._damage([k for k in self._shared.keys(LOG_PREFIX) if k not in self.strays])

    def damage_checkpoint(self, snapshot: Snapshot) -> str | None:
        """One without which all versions that are kept can still be read. The one that the log begins with is
        to be restored, since nothing of the log can be proved without it."""
        good = {
            version: key
            for key in self._shared.keys(CHECKPOINT_PREFIX)
            if key not in self.strays and (version := parse_checkpoint(key)) is not None
        }
        log = {parse_version(k) for k in self._shared.keys(LOG_PREFIX) if k not in self.strays}
        starts = {c for c in good if c in log and c <= snapshot.oldest}
        spare = [key for c, key in good.items() if 1 in log or starts - {c}]
        if not spare:
            return None
        key = self._random.choice(spare[:1] * 3 + spare)
        floors = map(parse_floor, self._shared.keys(CHECKPOINT_PREFIX))
        if parse_checkpoint(key) == max((floor or 0 for floor in floors), default=0):
            return self._damage([key])
        self._set(key, worse(self._shared.objects[key], self._random))
        self.strays.add(key)  # it holds nothing any more
        return key

    def _damage(self, keys: list[str]) -> str | None:
        if not keys:
            return None
        key = self._random.choice(keys)
        data = self.originals.setdefault(key, self._shared.objects[key])
        self._set(key, worse(data, self._random))
        self.hurts = True
        return key

    # --- strays ---

    def stray_log_file(self, snapshot: Snapshot) -> None:
        """With a number that is yet to come, near or far."""
        ahead = self._random.choice([2, 3, 20, 1_000, FAR])
        number = snapshot.version + ahead
        contents = [b"", b"garbage", self._some(LOG_PREFIX)]
        if ahead >= 1_000:
            contents.append(self._forged_version(snapshot, number, "another"))
        self._stray(version_key(number), self._random.choice(contents))
        self.hurts = self.hurts or ahead < 1_000  # once the log comes so far

    def stray_checkpoint(self, snapshot: Snapshot) -> None:
        """Of a version that is yet to come, or that has none, and without sense."""
        number = self._random.choice([snapshot.version, snapshot.version + 1, FAR, 10**20 - 1])
        number = self._random.choice([number, self._random.randint(1, snapshot.version)])
        contents = [b"", b"garbage", self._some(CHECKPOINT_PREFIX)]
        self._stray(checkpoint_key(number), self._random.choice(contents))

    def stray_objects(self, snapshot: Snapshot) -> None:
        """Under names that none of the table's programs gives, or with content that none writes."""
        names = [
            f"{LOG_PREFIX}notes.txt", f"{LOG_PREFIX}.tmp", f"{LOG_PREFIX}{'9' * 21}.json",
            f"{CHECKPOINT_PREFIX}notes.txt", f"{CHECKPOINT_PREFIX}{'0' * 19}.arrow",
            f"{DATA_PREFIX}a//b", f"{DATA_PREFIX}x.frag", "notes.txt", "_log", "a//b",
            fragment_key(FAR, "stray", 0), fragment_key(snapshot.version, "stray", 0),
        ]  # fmt: skip
        for name in self._random.sample(names, 3):
            self._stray(name, b"whatever")

    def forge(self, snapshot: Snapshot) -> None:
        """A checkpoint and a log file far ahead, each well-formed and in agreement with the other."""
        number = snapshot.version + self._random.choice([1_000, FAR])
        what = self._random.choice(["both", "both", "checkpoint", "log"])
        if what != "log":
            self._stray(checkpoint_key(number), self._forged_checkpoint(snapshot, number))
        if what != "checkpoint":
            table_id = self._random.choice([snapshot.table_id, "another"])
            self._stray(version_key(number), self._forged_version(snapshot, number, table_id))
        self.hurts = True  # a refusal that says what to do is right

    def _emptied(self, snapshot: Snapshot) -> bytes:
        return checkpoint_bytes(
            replace(snapshot, fragments=FragmentMap(), leases={}, quarantine={})
        )

    def _forged_checkpoint(self, snapshot: Snapshot, number: int) -> bytes:
        return self._emptied(
            replace(
                snapshot, version=number, commit_id="forged", min_base_version=number, oldest=number
            )
        )

    def _forged_version(self, snapshot: Snapshot, number: int, table_id: str) -> bytes:
        """table_id: who may read the log knows it."""
        changes = Changes(operation=Operation.VACUUM, min_base_version=number, oldest=number)
        stamp = snapshot.committed_unix_ms + self._random.choice([0, 10 * _YEAR_MS])
        return Version(
            number=number,
            commit_id="forged",
            committed_unix_ms=stamp,
            changes=changes,
            table_id=table_id,
        ).to_bytes()

    def _some(self, prefix: str) -> bytes:
        keys = [*self._shared.keys(prefix)]
        return self._shared.objects[self._random.choice(keys)] if keys else b""

    def _stray(self, key: str, data: bytes) -> None:
        if key not in self._shared.objects:
            self._set(key, data)
            self.strays.add(key)

    def _set(self, key: str, data: bytes) -> None:
        self._note(f"vandal: {key} is {len(data)} bytes: {data[:20]!r}")
        self._shared.set(key, data)
        self.was_here = True
