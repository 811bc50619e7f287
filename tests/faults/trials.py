"""The cases of one part: on a broker, with two processes that streams die in."""

from __future__ import annotations

import random
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import active_children
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any

from tests.faults.chains import ROUNDS, Case, Chain, kill_points
from tests.faults.hosts import Host
from tests.faults.parts import PARTS
from tests.faults.record import Record
from tests.faults.scene import Calm, Scene
from tests.faults.strikes import World

from recount.kafka.connection import Connection
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Home, Project
from recount.runtime.settings import Settings

_STOPPED = Event()


@contextmanager
def world(folder: Path, kafka: EmbeddedKafka, project: Project) -> Iterator[World]:
    """Two hosts, of which the second begins when it is needed."""
    places = {name: str(folder / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    settings = Settings(
        profile="embedded", bootstrap_servers=kafka.bootstrap_servers, jars=str(project.spark_jars), **places
    )
    first, second = (Host(settings, project, folder / f"{name}.log") for name in ("first", "second"))
    try:
        yield World(first=first, second=second, kafka=kafka, connection=Connection.of(settings))
    finally:
        first.stop()
        second.stop()


def tried(
    world: World, folder: Path, part: str, faults: Sequence[str], seed: int, sample: int, record: Record
) -> list[Case]:
    """The cases of ``part`` under ``faults``, or (``sample``) so many points of each."""
    calm = Calm.of(Scene(part, f"{part}calm", folder / f"{part}calm", world.connection), world.first, ROUNDS)
    found: list[Case] = []
    for fault in faults:
        chance = random.Random(f"{seed}/{part}/{fault}")
        chain = Chain(world, folder, part, calm, fault, chance)
        chosen = [point for point in kill_points(calm, PARTS[part], chance) if chain.is_possible(point)]
        print(f"{part}, {fault}: {len(chosen)} effects", flush=True)
        cases = list(chain.run(chance.sample(chosen, min(sample or len(chosen), len(chosen)))))
        record.add(part, fault, cases)
        found += cases
    return found


def alone(part: str, faults: Sequence[str], seed: int, sample: int, record: Record) -> list[Case]:
    """The cases of ``part`` that are not kept, on a broker of its own; none once this process was told to stop."""
    faults = [name for name in faults if name in PARTS[part].faults and name not in record.done(part)]
    if _STOPPED.is_set() or not faults:
        return []
    project = Project.containing(Path(__file__).parent)
    with TemporaryDirectory(prefix="recount-faults-", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        kafka = EmbeddedKafka(home=Home(path=folder / "kafka"), project=project)
        with kafka, world(folder, kafka, project) as struck:
            return tried(struck, folder, part, faults, seed, sample, record)


def stop_when_told() -> None:
    """On SIGTERM end this process with all that it started: its broker and hosts, and the processes of the parts."""
    signal.signal(signal.SIGTERM, _stop)


def _stop(*_: Any) -> None:
    _STOPPED.set()
    for child in active_children():
        child.terminate()
    raise SystemExit(1)
