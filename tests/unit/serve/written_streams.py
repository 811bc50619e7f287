"""Streams of the shop with real Delta tables, written batch by batch as a driver writes them; no broker and no JVM."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any

import polars as pl
import uvicorn
from deltalake import write_deltalake
from starlette.types import ASGIApp
from tests.batch_proofs import a_proof
from tests.eventually import eventually
from tests.unit.engine.engine import LogRecord
from tests.unit.engine.topology_engine import TopologyEngine
from tests.unit.topologies.shop_log import CLOSING_MS, PARTITIONS, Arrival, topics_of

from recount.declare.columns import AUDIT, BATCH, GENERATION
from recount.declare.topology import Topology
from recount.engine.commit.batch import TopologyWork
from recount.engine.commit.stream_tables import BatchRows
from recount.profile.daemon import LOOPBACK, free_ports
from recount.serve.listening import listening
from recount.tables.batch_proofs import RUNS
from recount.tables.places import Tables

FIRST_MS, BETWEEN_MS = 1_700_000_000_000, 60_000
"""When the first batch was recorded, and how long after it the next."""


def recorded_ms(batch: int) -> int:
    return FIRST_MS + batch * BETWEEN_MS


@dataclass(frozen=True)
class WrittenStream:
    """``topology`` with its tables below ``root``."""

    topology: Topology
    root: Path

    @property
    def tables(self) -> Tables:
        return Tables(str(self.root))

    def write(self, cuts: Sequence[Sequence[Arrival]]) -> None:
        """Each of ``cuts`` is a batch."""
        tables = TopologyWork(self.topology, str(self.root)).tables
        tables.create()
        engine = TopologyEngine(self.topology, dict.fromkeys(topics_of(self.topology), PARTITIONS))
        for batch, cut in enumerate(cuts):
            by_topic: dict[str, list[LogRecord]] = {topic: [] for topic in topics_of(self.topology)}
            for one in cut:
                key = None if one.key is None else one.key.encode()
                record = LogRecord(partition=one.partition, timestamp_ms=one.timestamp_ms, key=key, value=one.value)
                by_topic[one.topic].append(record)
            computed = engine.batch(by_topic, now_ms=CLOSING_MS)
            # what a single aggregation writes has fewer columns than what the engine of any topology makes
            rows = {
                name: frame.select(set(tables.outputs[name].schema) - {GENERATION, BATCH})
                for name, frame in computed.emitted.items()
            }
            none = pl.DataFrame(schema=tables.state.schema).drop(GENERATION, BATCH)
            proof = a_proof(
                batch,
                *computed.after.partitions.values(),
                stream=self.topology.name,
                batch_timestamp_ms=recorded_ms(batch),
                frontier_ms=computed.after.frontier_ms,
            )
            tables.append(BatchRows(state=none, late=computed.late, rejected=computed.rejected, emitted=rows), proof)

    def audit(self, batch: int, **said: Any) -> None:
        """A complete audit up to ``batch``."""
        document = {
            "audit": f"night-{batch}",
            "finished_ms": recorded_ms(batch) + 1,
            "generation": 0,
            "batch": batch,
            "frontier_ms": 1_000,
            "outcome": "match",
            **said,
        }
        rows = pl.DataFrame({"document": [json.dumps(document)], AUDIT: [document["audit"]]})
        write_deltalake(self.tables.audit(self.topology.name, RUNS), rows, mode="append")

    def correct(self, table: str, rows: pl.DataFrame) -> None:
        """A backfill's ``rows``."""
        write_deltalake(self.tables.corrections(table), rows, mode="append")


def as_arrivals(
    topic: str, *records: tuple[str | None, int, dict[str, Any] | None], partition: int = 0
) -> list[Arrival]:
    """Records of ``topic``: key, second, value."""
    return [
        Arrival(
            topic=topic,
            partition=0,
            key=key,
            value=None if value is None else json.dumps(value).encode(),
            timestamp_ms=second * 1_000,
        )
        for key, second, value in records
    ]


@contextmanager
def listened(app: ASGIApp) -> Iterator[tuple[str, int]]:
    """Where ``app`` listens, as `recount serve` lets it listen."""
    [port] = free_ports(1)
    server = uvicorn.Server(listening(app, LOOPBACK, port))
    thread = Thread(target=server.run)
    thread.start()
    assert eventually(lambda: server.started, expected=True, limit_s=60)
    yield LOOPBACK, port
    server.should_exit = True
    thread.join(30)


PAGE = (Path(__file__).parents[3] / "docs" / "tables.md").read_text()


def snippet(heading: str, language: str = "python") -> str:
    """The first one below ``heading``."""
    section = PAGE.partition(f"## {heading}\n")[2].partition("\n## ")[0]
    found = re.search(rf"```{language}\n(.*?)```", section, re.DOTALL)
    assert found, f"no {language} below {heading}"
    return found[1]


def rows_of(heading: str, **given: Any) -> list[tuple[Any, ...]]:
    """What the snippet below ``heading`` calls ``rows``."""
    names = dict(given)
    exec(snippet(heading), names)  # noqa: S102 - it is our own page
    return sorted(names["rows"])
