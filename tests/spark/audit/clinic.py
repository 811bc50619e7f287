"""A small clinic: visits by patient, counted by window and passed on one by one; what is kept of a patient at rest."""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from tests.spark.audit.stage import Stage, output_topic, settings_below, source_topic

from recount.audit.certificate.signing import make_keys
from recount.declare.aggregates import count, total
from recount.declare.expressions import col
from recount.declare.groups import Archive
from recount.declare.registry import Declarations
from recount.declare.schema import STRING, RecordSchema, decimal
from recount.declare.topology import Topology, stream
from recount.declare.windows import tumbling
from recount.lifecycle.erase_command import Asked
from recount.lifecycle.erasing import Order
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.home import Project
from recount.runtime.settings import Settings
from recount.tables.places import Tables

ZOE, NOAH, ANNA, EVE, IDA = "zoe-4711", "noah-1", "anna-2", "eve-3", "ida-5"


class Forgetful:
    """Whoever keys are erased from: all of its ``declarations`` that have the key, or those that are named."""

    settings: Settings
    declarations: Declarations

    def erasure(self, key: str, *named: str, **more: Any) -> Asked:
        """What ``recount erase`` would do."""
        order = Order(key=key, by="Ada", reason="asked to be forgotten")
        return Asked.of(self.settings, self.declarations, order, named, **more)

    def erase(self, key: str, *named: str, **more: Any) -> None:
        """``recount erase``."""
        asked = self.erasure(key, *named, **more)
        assert asked.hindrances() == []
        for one in asked.streams:
            one.run()
        for archived in asked.archives:
            archived.run()

    def erase_dying(self, key: str, name: str) -> list[str]:
        """The same of one stream, killed after each step and run again; returns where it was killed."""
        killed: list[str] = []
        while True:
            try:
                self.erase(key, name, observer=_Killing(killed))
                return killed
            except Killed as death:
                killed.append(str(death))


@dataclass(frozen=True, kw_only=True)
class Clinic(Forgetful):
    """Two streams that read one topic: ``bills`` is a single aggregation, ``notes`` keeps no state."""

    bills: Stage
    notes: Stage
    archive: Archive

    @property
    def settings(self) -> Settings:  # type: ignore[override]
        return self.bills.settings

    @property
    def tables(self) -> Tables:
        return Tables(self.settings.data)

    @property
    def stages(self) -> tuple[Stage, Stage]:
        return self.bills, self.notes

    @property
    def declarations(self) -> Declarations:  # type: ignore[override]
        topologies = {one.topology.name: one.topology for one in self.stages}
        return Declarations(topologies=topologies, topics={}, archives={self.archive.name: self.archive})

    def visits(self, said: Sequence[tuple[str, float, float]]) -> None:
        """Append visits: patient, minute, fee."""
        self.bills.produce([("visits", 0, who, minute, {"note": "n", "fee": fee}) for who, minute, fee in said])

    def run(self) -> None:
        """Let both streams and the archive process what is there."""
        for stage in self.stages:
            stage.run()
        self.bills.archive()


class Killed(BaseException):
    """What takes the place of kill -9: nothing of the project catches it."""


@dataclass(frozen=True)
class _Killing:
    """Kills at the first step at which it was not killed before."""

    killed: list[str]

    def __call__(self, step: str) -> None:
        if step != "done" and step not in self.killed:
            raise Killed(step)


def clinic_of(spark: SparkSession, kafka: EmbeddedKafka, project: Project, root: Path) -> Clinic:
    """With topics and tables of its own, and a key that signs."""
    tail = uuid.uuid4().hex[:6]
    settings = settings_below(root, kafka, project)
    make_keys(root / "keys", reports=root / "reports")
    settings = replace(settings, keys=str(root / "keys"))
    schema = RecordSchema.of(note=STRING, fee=decimal(15, 2), required=("fee",))
    visits = source_topic(f"visits-{tail}", schema)
    bills = (
        stream(visits)
        .windowed_by(tumbling("5 min", grace="60 s"))
        .aggregate(visits=count(), fees=total("fee"))
        .emit_each_batch()
        .to(output_topic(f"bills-{tail}"), table="bills")
    )
    compacted = replace(output_topic(f"notes-{tail}"), cleanup_policy="compact")
    notes = stream(visits).filter(col("fee") > 0).to(compacted, table="notes")
    stages = [
        Stage(spark=spark, settings=settings, topology=Topology(name=f"{name}-{tail}", sinks=[sink]))
        for name, sink in (("bills", bills), ("notes", notes))
    ]
    for stage in stages:
        stage.create_topics()
    return Clinic(bills=stages[0], notes=stages[1], archive=Archive(topic=visits))


def files_naming(root: str, key: str) -> list[str]:
    """The files below ``root`` that hold ``key``: as they lie there, decompressed, or in an Arrow stream."""
    files = (path for path in sorted(Path(root).rglob("*")) if path.is_file())
    return [str(path.relative_to(root)) for path in files if key.encode() in path.read_bytes() or _names(path, key)]


def dead_files(root: str) -> list[str]:
    """The data files below ``root`` that the newest version of their table does not have."""
    found = []
    for log in sorted(Path(root).rglob("_delta_log")):
        live = {str(Path(file).resolve()) for file in _paths(log.parent)}
        found += [
            str(file)
            for file in log.parent.rglob("*.parquet")
            if "_delta_log" not in file.parts and str(file.resolve()) not in live
        ]
    return found


def _paths(table: Path) -> list[str]:
    return [str(table / name) for name in pa.table(DeltaTable(str(table)).get_add_actions()).column("path").to_pylist()]


def _names(path: Path, key: str) -> bool:
    if path.suffix != ".parquet":
        return False
    table = pq.ParquetFile(path).read()
    if any(key in repr(column.to_pylist()) for column in table.columns):
        return True
    if "rows" not in table.column_names:
        return False
    streams = [one for one in table.column("rows").to_pylist() if one]
    return any(key in repr(pa.ipc.open_stream(one).read_all().to_pylist()) for one in streams)
