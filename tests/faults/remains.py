"""What a stream has left behind, without what names the stream, the driver or the hour."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import polars as pl
from deltalake import DeltaTable
from tests.integration.engine.drivers import by_key, committed

from recount.declare.columns import BACKFILL, BATCH, GENERATION, PUBLISHED_AT
from recount.declare.groups import Archive
from recount.declare.output import VERSION_HEADER
from recount.declare.registry import Stream
from recount.declare.topology import Topology
from recount.engine.stage.partials import plan_of
from recount.kafka.connection import Connection
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

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
    if plan_of(declared) is not None:
        # what the operators of other topologies hold is laid out as the batches were cut; the next rounds tell of it
        yield "state", _rows(tables.state(declared.name))
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
