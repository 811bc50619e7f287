"""What keeps one stream from being audited keeps no other, and is told as an error of ours where a table is damaged."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError
from pyspark.errors import AnalysisException

from recount.audit.cut.auditable import Auditable, AuditRequest, require_auditable
from recount.audit.findings.finding_register import Interval
from recount.audit.integrity.strangers import damage_told
from recount.declare.schema import LONG, RecordSchema
from recount.declare.topics import Topic
from recount.declare.topology import Topology, stream
from recount.runtime.errors import Terminal, Transient
from recount.runtime.settings import Settings as RealSettings

REQUEST = AuditRequest(audit="night-1", interval=Interval(), source="auto")


class Settings:
    """Whoever asks for the keys gets ``error`` instead."""

    def __init__(self, error: Exception) -> None:
        self.error = error

    @property
    def keys(self) -> str:
        raise self.error


@pytest.mark.parametrize(
    ("raised", "kind"),
    [(DeltaError("a gap"), Terminal), (KeyError("partitions"), KeyError), (Transient("x"), Transient)],
)
def test_each_stream_has_its_refusal_whatever_it_is(raised: Exception, kind: type[Exception]) -> None:
    topologies: Any = [SimpleNamespace(name="orders"), SimpleNamespace(name="clicks")]
    settings: Any = Settings(raised)
    found = Auditable.of(settings, topologies, REQUEST)
    assert (found.offsets, {name: type(one) for name, one in found.refusals.items()}) == (
        {},
        {"orders": kind, "clicks": kind},
    )


def test_damage_is_told_with_its_stream_and_the_first_line_of_what_was_said(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"n": [1]}))
    (tmp_path / "_delta_log" / f"{1:020}.json").write_text("no JSON")
    with pytest.raises(Terminal) as told, damage_told("orders"):
        pl.scan_delta(str(tmp_path)).collect()
    assert "orders" in told.value.what
    assert "\n" not in str(told.value.given)
    assert isinstance(told.value.__cause__, DeltaError)


def test_a_file_that_is_gone_or_no_parquet_is_damage(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "table", pa.table({"n": [1]}))
    [file] = DeltaTable(tmp_path / "table").file_uris()
    Path(file).write_bytes(b"no parquet")
    with pytest.raises(Terminal), damage_told("orders"):
        pl.scan_delta(str(tmp_path / "table")).collect()
    with pytest.raises(Terminal), damage_told("orders"):
        pq.read_table(file)
    Path(file).unlink()
    with pytest.raises(Terminal), damage_told("orders"):
        pl.scan_delta(str(tmp_path / "table")).collect()
    with pytest.raises(Terminal), damage_told("orders"):
        raise AnalysisException("[UNRESOLVED_COLUMN] recount_revision")


@pytest.mark.parametrize("raised", [Transient("later"), ValueError("ours"), ConnectionError("refused")])
def test_what_is_no_damage_stays_as_it_is(raised: Exception) -> None:
    with pytest.raises(type(raised)) as told, damage_told("orders"):
        raise raised
    assert told.value is raised


def test_a_stream_that_writes_nothing_is_refused_before_spark_starts(tmp_path: Path) -> None:
    folders = {name: str(tmp_path / name) for name in ("data", "checkpoints", "reports", "logs", "run")}
    settings = RealSettings(profile="embedded", bootstrap_servers="127.0.0.1:1", jars="", **folders)
    payments = stream(Topic(name="payments", key="id", value=RecordSchema.of(cents=LONG)))
    shown = Topology(name="shown", actions=[payments.foreach(print)])
    with pytest.raises(Terminal, match=r"shown writes no records.*actions only"):
        require_auditable(settings, shown, REQUEST)
