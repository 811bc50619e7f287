"""One stream with its topics and its tables, round by round; and the undisturbed one with which it is compared."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl
from deltalake import DeltaTable
from tests.faults.hosts import Host, Job, Outcome
from tests.faults.parts import PARTS, Part
from tests.integration.engine.drivers import by_key, committed
from tests.integration.engine.purchases import create_topics, produce

from recount.declare.columns import BACKFILL, BATCH, GENERATION, PUBLISHED_AT
from recount.declare.groups import Archive
from recount.declare.output import VERSION_HEADER
from recount.declare.registry import Stream
from recount.declare.topology import Topology
from recount.kafka.connection import Connection
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables


@dataclass
class Scene:
    """The stream ``name`` of a part, below the folder ``root``; nothing else is there."""

    part: str
    name: str
    root: Path
    connection: Connection
    round: int = -1

    @property
    def kind(self) -> Part:
        return PARTS[self.part]

    @property
    def declared(self) -> Stream:
        return self.kind.declared(self.name, max(self.round, 0))

    @property
    def checkpoints(self) -> Path:
        return self.root / "checkpoints"

    @property
    def data(self) -> Path:
        return self.root / "data"

    def create(self) -> None:
        """Its topics, and its folder."""
        self.root.mkdir(parents=True, exist_ok=True)
        create_topics(self.connection, [self.kind.topics_as(self.name)])

    def next_round(self) -> None:
        """Produce the records of the next round."""
        self.round += 1
        produce(self.connection, self.kind.records(self.name, self.round))

    def keep_backup(self) -> None:
        """Keep a copy of the tables as they are before the next round."""
        if self.data.exists():
            shutil.copytree(self.data, self._backup(self.round + 1))

    def backup(self, rounds_ago: int) -> Path | None:
        """The tables as they were so many rounds before this one began; None where there were none."""
        kept = self._backup(self.round - rounds_ago)
        return kept if kept.exists() else None

    def _backup(self, round_: int) -> Path:
        return self.root / "backups" / str(round_)

    def job(self, step: str | None = None, **more: Any) -> Job:
        """The ``step`` of this round, by default the one that is struck."""
        return Job(
            part=self.part, name=self.name, root=str(self.root), step=step or self.kind.step, round=self.round, **more
        )

    def remains(self) -> Remains:
        return remains(self.connection, self.name, self.declared, str(self.root))

    def do(self, host: Host, steps: Sequence[str]) -> list[Outcome]:
        """The ``steps`` of this round, undisturbed; an error here is no finding but a fault of the suite."""
        outcomes = []
        for step in steps:
            outcomes.append(host.run(self.job(step)))
            if outcomes[-1].ended != "done":
                raise AssertionError(f"{step} of {self.name} failed undisturbed: {outcomes[-1]}\n{host.said()}")
        return outcomes


@dataclass(frozen=True, kw_only=True)
class Calm:
    """The undisturbed run: what each round left behind, what its step and those after told, which effects it had."""

    remains: Sequence[Remains] = field(default_factory=list)
    told: Sequence[list[Mapping[str, Any]]] = field(default_factory=list)
    effects: Sequence[tuple[str, ...]] = field(default_factory=list)

    @classmethod
    def of(cls, scene: Scene, host: Host, rounds: int) -> Calm:
        """Run ``rounds`` of ``scene``."""
        scene.create()
        left, told, effects = [], [], []
        for _ in range(rounds):
            scene.next_round()
            scene.do(host, scene.kind.before)
            outcomes = scene.do(host, [scene.kind.step, *scene.kind.after])
            left.append(scene.remains())
            told.append([outcome.told or {} for outcome in outcomes])
            effects.append(outcomes[0].effects)
        return cls(remains=left, told=told, effects=effects)


Remains = dict[str, list[str]]


def remains(connection: Connection, name: str, declared: Stream, root: str) -> Remains:
    """The committed records of every topic that it writes, the rows of every table, and the ledger."""
    tables = Tables(f"{root}/data")
    found = dict(_of_archive(tables, declared) if isinstance(declared, Archive) else _of(connection, tables, declared))
    return {what.replace(name, "*"): sorted(row.replace(name, "*") for row in rows) for what, rows in found.items()}


def differences(expected: Remains, found: Remains) -> list[str]:
    """In what the two differ, with an example of each."""
    told = []
    for what, rows in expected.items():
        if rows != found.get(what, []):
            missing, extra = _without(rows, found.get(what, [])), _without(found.get(what, []), rows)
            example = (f"missing {missing[0]}" if missing else f"too many: {extra[0]}")[:300]
            told.append(f"{what}: {len(missing)} missing, {len(extra)} too many; {example}")
    return told


def _without(rows: list[str], others: list[str]) -> list[str]:
    left = list(rows)
    for other in others:
        if other in left:
            left.remove(other)
    return left


def _of(connection: Connection, tables: Tables, declared: Topology) -> Iterator[tuple[str, list[str]]]:
    letters = [source.topic.dead_letter_name for source in declared.sources]
    topics = [*(written.topic.name for written in declared.written), *letters]
    yield from _committed(connection, topics).items()
    for written in declared.written:
        yield f"table {written.table}", _rows(tables.output(written.table))
        yield f"corrections {written.table}", _rows(tables.corrections(written.table))
    yield "late", _rows(tables.late(declared.name))
    yield "rejected", _rows(tables.rejected(declared.name))
    yield "proofs", _proofs(Proofs(state=tables.state(declared.name), moved_to=tables.ledger(declared.name)))


def _of_archive(tables: Tables, declared: Archive) -> Iterator[tuple[str, list[str]]]:
    path = tables.archive(declared.topic.name)
    yield "archive", _rows(path)
    yield "proofs", _proofs(Proofs(state=path))


def _committed(connection: Connection, topics: list[str]) -> dict[str, list[str]]:
    """The committed records of each topic, in the order of each key; of dead letters without the time of writing.

    Versions are counted: a reset that was ordered twice leaves one out.
    """
    return {
        f"topic {topic}": [
            f"{key!r}: {number}: {told if topic.endswith('.dlq') else (*told, timestamp)}"
            for key, all_ in by_key(committed(connection, topic)).items()
            for number, (*told, timestamp) in enumerate(_versions_counted(all_))
        ]
        for topic in topics
    }


def _versions_counted(records: list[tuple[Any, ...]]) -> Iterator[tuple[Any, ...]]:
    """Records of a key with 2 for the second version among them, whatever its number."""
    versions = sorted({int(dict(headers or ()).get(VERSION_HEADER, 1)) for _, headers, _ in records})
    for value, headers, timestamp in records:
        counted = [
            (name, b"%d" % (versions.index(int(told)) + 1) if name == VERSION_HEADER else told)
            for name, told in headers or ()
        ]
        yield value, counted, timestamp


def _rows(path: str) -> list[str]:
    if not DeltaTable.is_deltatable(path):
        return []
    rows = pl.scan_delta(path).drop(GENERATION, BATCH, BACKFILL, PUBLISHED_AT, strict=False).collect()
    return [str(row) for row in rows.iter_rows()]


def _proofs(proofs: Proofs) -> list[str]:
    """Those of batches that read something: another one may follow where only the offsets were behind."""
    told = [
        entry.proof for entry in proofs.newest_first() if any(part.start < part.end for part in entry.proof.partitions)
    ]
    return [f"{number}: {_anonymous(proof)}" for number, proof in enumerate(reversed(told))]


def _anonymous(proof: BatchProof) -> BatchProof:
    return replace(
        proof,
        generation=0,
        batch=0,
        stream="",
        checkpoint_id="",
        lease_epoch=0,
        fingerprint="",
        batch_timestamp_ms=0,
        partitions=tuple(replace(partition, last_read_ms=None) for partition in proof.partitions),
        emitted=dict(enumerate(proof.emitted.values())),
        appended=dict.fromkeys(proof.appended, ("", 0)),
        topic_ids={},
    )
