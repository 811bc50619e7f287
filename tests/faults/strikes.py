"""The faults: what happens to a stream at a point of its run, and in the world while it is dead."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import KafkaError, KafkaException
from tests.faults.effects import Point
from tests.faults.hosts import Host, Outcome
from tests.faults.scene import Scene

from recount.kafka.connection import BACKFILL_SLOT, Connection
from recount.kafka.transaction import OutputTransaction
from recount.profile.embedded_kafka import EmbeddedKafka

BROKER = 1
_DEAD_S = 1.0
_TRANSACTION_TIMEOUT_MS = 4_000
_TIMED_OUT_S = 16.0
"""Longer than that, and the 10 s between two looks of a broker for such transactions."""


@dataclass(frozen=True, kw_only=True)
class World:
    """What there is to be struck; ``second`` is where another driver of the stream can run."""

    first: Host
    second: Host
    kafka: EmbeddedKafka
    connection: Connection


@dataclass(frozen=True, kw_only=True)
class Struck:
    """How the run ended that was struck; ``reached`` says whether it came to its point."""

    outcome: Outcome
    reached: bool
    wrong: str = ""
    is_refused: bool = False


Strike = Callable[[World, Scene, Point, str], Struck]
"""Given how a driver dies: ``die`` or ``kill -9``."""


def restart(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The driver dies."""
    outcome = world.first.run(scene.job(at=at, then=death))
    return Struck(outcome=outcome, reached=outcome.ended == "killed")


def checkpoint_lost(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The driver dies, and Spark's checkpoint is gone when the next one starts."""
    struck = restart(world, scene, at, death)
    shutil.rmtree(scene.checkpoints, ignore_errors=True)
    return struck


def group_expired(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The driver dies, and its group's offsets expire before the next one starts."""
    struck = restart(world, scene, at, death)
    expire_group(scene)
    return struck


def expire_group(scene: Scene) -> None:
    """What the brokers do 7 days after the last commit; a transaction that was open has long timed out by then."""
    of_stream, admin = scene.connection.group(scene.declared.name), scene.connection.admin()
    for slot, group in (("0", of_stream), (BACKFILL_SLOT, f"{of_stream}.{BACKFILL_SLOT}")):
        OutputTransaction(scene.connection, scene.declared.name, slot, group=group).close()
        try:
            admin.delete_consumer_groups([group], request_timeout=15)[group].result()
        except KafkaException as error:
            if error.args[0].code() != KafkaError.GROUP_ID_NOT_FOUND:
                raise


def restored(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The driver dies, and the tables are those of a backup: as they were a round before this one began.

    The next driver must refuse to go on, and write nothing. Then the newest tables come back.
    """
    struck = restart(world, scene, at, death)
    backup, newest = scene.backup(1), scene.root / "newest"
    if backup is None:
        return struck
    scene.data.rename(newest)
    shutil.copytree(backup, scene.data)
    before = scene.remains()
    again = world.first.run(scene.job())
    after = scene.remains()
    shutil.rmtree(scene.data)
    newest.rename(scene.data)
    if not again.is_refusal:
        return Struck(outcome=again, reached=struck.reached, wrong=f"went on with tables of a backup: {again}")
    if after != before:
        changed = sorted(name for name in before if before[name] != after[name])
        return Struck(outcome=again, reached=struck.reached, wrong=f"a start that was refused wrote {changed}")
    return Struck(outcome=again, reached=struck.reached, is_refused=True)


def zombie(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The driver is stopped with SIGSTOP; another one does its work; then the first wakes up.

    An audit that stands still while it issues its certificate lets no other one do so, and that one says so.
    """
    world.first.begin(scene.job(at=at, then="freeze"))
    ended = world.first.reached()
    if ended is not None:
        return Struck(outcome=ended, reached=False)
    time.sleep(0.2)
    other = world.second.run(scene.job())
    world.first.wake()
    woken = world.first.outcome()
    is_locked_out = scene.kind.step == "audit" and other.kind == "Transient" and "another audit" in other.error
    if other.ended != "done" and not is_locked_out:
        return Struck(outcome=other, reached=True, wrong=f"the second driver: {other}")
    return Struck(outcome=woken, reached=True)


def broker_lost(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The only broker dies with -9 under the driver and comes back."""

    def happens() -> None:
        world.kafka.stop_broker(BROKER, patience_s=0)
        world.first.go_on()
        time.sleep(_DEAD_S)
        world.kafka.start()

    return _meanwhile(world, scene, at, happens)


def timed_out(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The driver is held up for longer than its transaction may be open."""

    def happens() -> None:
        time.sleep(_TIMED_OUT_S)
        world.first.go_on()

    return _meanwhile(world, scene, at, happens, transaction_timeout_ms=_TRANSACTION_TIMEOUT_MS)


def disk_full(world: World, scene: Scene, at: Point, death: str) -> Struck:
    """The disk with tables, checkpoint and reports is full until the driver has ended."""
    filler = scene.root / "filler"

    def happens() -> None:
        with suppress(OSError), filler.open("wb") as file:
            while True:
                file.write(b"0" * 65_536)
                file.flush()
        world.first.go_on()

    try:
        return _meanwhile(world, scene, at, happens)
    finally:
        filler.unlink(missing_ok=True)


def _stepping(seconds: int) -> Strike:
    def steps(world: World, scene: Scene, at: Point, death: str) -> Struck:
        outcome = world.first.run(scene.job(at=at, then=f"clock {seconds:+}"))
        return Struck(outcome=outcome, reached=outcome.reached)

    steps.__doc__ = f"The clock that the driver reads steps by {seconds:+} s and stays so until it ends."
    return steps


def _meanwhile(
    world: World, scene: Scene, at: Point, happens: Callable[[], None], *, transaction_timeout_ms: int | None = None
) -> Struck:
    """Something ``happens``, and lets the driver go on, while it waits at its point."""
    world.first.begin(scene.job(at=at, then="wait", transaction_timeout_ms=transaction_timeout_ms))
    ended = world.first.reached()
    if ended is not None:
        return Struck(outcome=ended, reached=False)
    happens()
    return Struck(outcome=world.first.outcome(), reached=True)


@dataclass(frozen=True, kw_only=True)
class Fault:
    """A fault; ``goes_on``: the run that is struck can come to its end. It may need a disk of its own, or a backup.

    ``is_death_only``: a second driver that dies further on finds what a first one would have found that died there.
    """

    strike: Strike
    goes_on: bool = False
    is_death_only: bool = False
    needs_disk: bool = False
    needs_backup: bool = False
    after: tuple[str, ...] = ("",)
    """How the effects begin after which it can happen."""

    def concerns(self, effect: str) -> bool:
        """Whether it can happen after this effect."""
        return effect.startswith(self.after)

    @property
    def told(self) -> str:
        """What it is, in a sentence."""
        return (self.strike.__doc__ or "").split("\n")[0]


FAULTS: Mapping[str, Fault] = {
    "restart": Fault(strike=restart, is_death_only=True),
    "checkpoint lost": Fault(strike=checkpoint_lost),
    "offsets expired": Fault(strike=group_expired),
    "ledger restored": Fault(strike=restored, needs_backup=True),
    "zombie": Fault(strike=zombie, goes_on=True),
    "broker lost": Fault(strike=broker_lost, goes_on=True),
    "transaction timed out": Fault(strike=timed_out, goes_on=True, after=("kafka first record", "kafka offsets")),
    "clock +1 min": Fault(strike=_stepping(60), goes_on=True),
    "clock -1 min": Fault(strike=_stepping(-60), goes_on=True),
    "disk full": Fault(strike=disk_full, goes_on=True, needs_disk=True),
}


@contextmanager
def small_disk(place: Path, megabytes: int = 48) -> Iterator[Path]:
    """A disk of its own at ``place``: a file system in memory, for which one must be allowed to mount."""
    place.mkdir(parents=True)
    command = f"mount -t tmpfs -o size={megabytes}m tmpfs {place}"
    if os.system(command):  # noqa: S605 - a path of our own
        raise AssertionError(f"`{command}` failed: run this as root, or leave the fault out: --without 'disk full'")
    try:
        yield place
    finally:
        os.system(f"umount -l {place}")  # noqa: S605
