"""One sample of a soak: what a running stream holds in memory, on disk and in its tables, and how its batches went."""

from __future__ import annotations

import os
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from bench.batches import Batch
from bench.deployment import Deployment
from bench.processes import footprints
from recount.advise.measured import measured
from recount.declare.topology import Topology
from recount.tables.places import Tables

GROUPS = MEMORY, OPEN_FILES, BATCH, RECORDS, ROWS, FILES = (
    "memory MiB",
    "open files",
    "batch ms",
    "records",
    "rows",
    "files",
)
"""The groups of figures; a figure is named ``<group>: <what>``."""

Figures = Mapping[str, float]

_MIB = 1 << 20
_DELTA_LOG = "_delta_log"
_CHECKPOINT_FOLDERS = ("offsets", "commits", "sources")


@dataclass(frozen=True, kw_only=True)
class Sampler:
    """Takes samples of the stream ``topology``, whose driver was submitted as ``pid``."""

    deployment: Deployment
    topology: Topology
    pid: int

    def sample(self, batches: Sequence[Batch]) -> Figures:
        """The figures of now, and of ``batches``, those since the last sample."""
        return dict([*self._processes(), *_speed(batches), *self._rows(), *self._files()])

    def _processes(self) -> Iterator[tuple[str, float]]:
        for role, footprint in footprints(self.pid).items():
            yield f"{MEMORY}: {role}", footprint.memory_bytes / _MIB
            yield f"{OPEN_FILES}: {role}", footprint.open_files

    def _rows(self) -> Iterator[tuple[str, float]]:
        found = measured(self.topology, self.deployment.data(self.topology.name))
        if found:
            yield f"{ROWS}: state held", sum(held.rows for held in found.held.values())
            yield f"{ROWS}: table of state", found.table.rows
            yield f"{ROWS}: tables of outputs", found.outputs.rows
            yield f"{FILES}: state, in use", found.table.files
            yield f"{FILES}: outputs, in use", found.outputs.files

    def _files(self) -> Iterator[tuple[str, float]]:
        places, stream = Tables(self.deployment.data(self.topology.name)), self.topology.name
        tables = {"state": places.state(stream), "ledger": places.ledger(stream)}
        tables |= {"late": places.late(stream), "rejected": places.rejected(stream)}
        tables |= {f"output {sink.table}": places.output(sink.table) for sink in self.topology.sinks}
        for name, path in tables.items():
            log = files_in(Path(path) / _DELTA_LOG)
            yield f"{FILES}: {name}", files_in(Path(path)) - log
            yield f"{FILES}: {name}, Delta log", log
        for name in _CHECKPOINT_FOLDERS:
            yield f"{FILES}: checkpoint, {name}", files_in(self.deployment.checkpoint(stream) / name)


def files_in(folder: Path) -> int:
    """How many files lie below ``folder``, hidden ones too; 0 without it."""
    return sum(len(files) for _, _, files in os.walk(folder))


def _speed(batches: Sequence[Batch]) -> Iterator[tuple[str, float]]:
    """Nothing without a batch."""
    if not batches:
        return
    durations_ms = [batch.duration_ms for batch in batches]
    yield f"{BATCH}: median", statistics.median(durations_ms)
    yield f"{BATCH}: p99", float(np.percentile(durations_ms, 99))
    yield f"{BATCH}: Kafka commit, median", statistics.median(batch.kafka_ms for batch in batches)
    yield f"{BATCH}: Delta commit, median", statistics.median(batch.delta_ms for batch in batches)
    yield f"{RECORDS}: waiting after a batch, median", statistics.median(batch.lag for batch in batches)
    yield f"{RECORDS}: read, per batch", statistics.mean(batch.records for batch in batches)
