"""What may go wrong beside requests that fail: one run has few of these, drawn from its seed."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct
from msgspec.structs import replace

from compactor.errors import StoreError
from compactor.stores.s3_answers import refusal
from compactor.table.snapshot import Snapshot
from tests.faults import Refuse
from tests.simulation.actors import World, settle_losses
from tests.simulation.store import UPLOADS, UPLOADS_AND_CREATIONS

_DAY_MS = 86_400_000
_YEAR_MS = 365 * _DAY_MS


class Hazard(Struct, frozen=True):
    name: str
    prepare: Callable[[World], None]
    """Called before the actors begin."""
    waits_for: str = ""
    """What the product does not do yet: until it does, runs have this hazard only if asked to."""

    def __str__(self) -> str:
        return self.name


def _requests_are_delivered_twice(world: World) -> None:
    chance = world.random.choice([0.1, 0.4])
    world.shared.chances = replace(world.shared.chances, deliver_twice=chance)


def _conditions_are_ignored(world: World) -> None:
    world.shared.has_conditions = False


def _clocks_are_wrong(world: World) -> None:
    """Those of some actors, from the beginning."""
    world.auditor.clocks_lie = True
    world.set_windows(0.5)
    wild = [_YEAR_MS, -_YEAR_MS, _DAY_MS, 10 * _YEAR_MS]
    world.scheduler.skews_ms = [0, 0, 2_000, -30_000, world.random.choice(wild)]


def _clocks_jump(world: World) -> None:
    world.auditor.clocks_lie = True
    world.set_windows(0.5)
    wild = [_YEAR_MS, -_YEAR_MS, _DAY_MS, 10 * _YEAR_MS]
    _repeatedly(world, "jump", lambda: world.scheduler.jump(world.random.choice([0, *wild])))


def _the_disk_is_full(world: World) -> None:
    """For a while, as a folder's store tells it."""
    _refuses(world, StoreError("/data/t: no space left on the device: free some, and try again"))


def _the_store_refuses(world: World) -> None:
    """For a while, by an answer that no list has."""
    error = refusal("s3://bucket/t", "server", code="KMS.DisabledException", status=400)
    assert isinstance(error, StoreError)
    _refuses(world, error)


def _refuses(world: World, error: StoreError) -> None:
    def run() -> None:
        for _ in range(world.random.randint(1, 2)):
            world.scheduler.sleep(world.random.expovariate(1 / 60))
            world.note(str(error))
            world.shared.refusal = Refuse(lambda _: error)
            # What is small may find room, and have another key.
            world.shared.refused_writes = world.random.choice([UPLOADS_AND_CREATIONS, UPLOADS])
            world.scheduler.sleep(world.random.expovariate(1 / 200))
            world.shared.refusal = None
            world.note("the store takes writes again")

    world.scheduler.spawn("disk", run)


def _memory_is_short(world: World) -> None:
    """For compactions of some fragments, alone or together."""

    def choose() -> None:
        keys = list(world.auditor.snapshot.fragments)
        most = world.random.choice([1, 1, 2])
        if len(keys) >= most and not world.fatal:
            world.fatal.update(world.random.sample(keys, most))
            world.auditor.unhealthy.update(world.fatal)
            world.note(f"fatal together: {sorted(world.fatal)}")

    _repeatedly(world, "memory", choose, times=3)


def _sessions_are_lost(world: World) -> None:
    world.lost_sessions = world.random.choice([0.1, 0.5])


def _fragments_are_damaged(world: World) -> None:
    def damage() -> None:
        key = world.vandal.damage_fragment()
        if key is not None:
            world.auditor.unhealthy.add(key)

    _repeatedly(world, "vandal", damage)


def _fragments_are_lost(world: World) -> None:
    """Until an operator restores them or gives them up."""

    def lose() -> None:
        key = world.vandal.lose_fragment(world.auditor.snapshot)
        if key is not None:
            world.auditor.unhealthy.add(key)

    def operate() -> None:
        world.scheduler.sleep(world.random.expovariate(1 / 200))
        with world.tolerant("operator"):
            settle_losses(world, world.log())

    _repeatedly(world, "vandal", lose)
    _repeatedly(world, "operator", operate)


def _newest_versions_are_replaced(world: World) -> None:
    def replace_newest() -> None:
        if world.vandal.replace_newest(world.auditor.snapshot) is not None:
            world.auditor.check_fresh_reader()

    _repeatedly(world, "vandal", replace_newest)


def _newest_versions_are_lost(world: World) -> None:
    """And are there again at once: what comes after such a loss depends on who comes first."""
    _repeatedly(world, "vandal", world.auditor.check_loss_is_told, times=4)


def _deletions_are_damaged(world: World) -> None:
    def damage() -> None:
        key = world.vandal.damage_deletions()
        fragments = world.auditor.snapshot.fragments.all() if key is not None else ()
        world.auditor.unhealthy.update(
            e.key for e in fragments if e.deletion and e.deletion.key == key
        )

    world.deletes = 3
    _repeatedly(world, "vandal", damage, times=3)


def _log_files_are_damaged(world: World) -> None:
    _repeatedly(world, "vandal", lambda: world.vandal.damage_log_file())


def _vandal(world: World, act: Callable[[Snapshot], object]) -> None:
    """At any time, and right before vacuums; in the midst of one, it may have read what it keeps."""

    def do() -> None:
        if world.auditor.snapshot.version and not world.vacuums:
            act(world.auditor.snapshot)

    world.strikes.append(do)
    _repeatedly(world, "vandal", do)


def _repeatedly(world: World, name: str, act: Callable[[], object], times: int = 0) -> None:
    def run() -> None:
        for _ in range(times or world.random.randint(1, 2)):
            world.scheduler.sleep(world.random.expovariate(1 / 60))
            act()

    world.scheduler.spawn(name, run)


HAZARDS = [
    Hazard("requests delivered twice", _requests_are_delivered_twice),
    Hazard("a store without conditions", _conditions_are_ignored),
    Hazard("checkpoints damaged", lambda w: _vandal(w, w.vandal.damage_checkpoint)),
    Hazard("checkpoints without sense", lambda w: _vandal(w, w.vandal.stray_checkpoint)),
    Hazard("checkpoint and log file forged", lambda w: _vandal(w, w.vandal.forge)),
    Hazard("log files of the future", lambda w: _vandal(w, w.vandal.stray_log_file)),
    Hazard("strange names", lambda w: _vandal(w, w.vandal.stray_objects)),
    Hazard("log files damaged", _log_files_are_damaged),
    Hazard("fragments damaged", _fragments_are_damaged),
    Hazard("fragments lost", _fragments_are_lost),
    Hazard("older log files in the newest one's place", _newest_versions_are_replaced),
    Hazard("newest log files lost", _newest_versions_are_lost),
    Hazard("deletions damaged", _deletions_are_damaged),
    Hazard("clocks wrong", _clocks_are_wrong),
    Hazard("clocks that jump", _clocks_jump),
    Hazard("a full disk", _the_disk_is_full),
    Hazard("writes refused", _the_store_refuses),
    Hazard("too little memory", _memory_is_short),
    Hazard("sessions lost", _sessions_are_lost),
]  # fmt: skip
BY_NAME = {hazard.name: hazard for hazard in HAZARDS}
