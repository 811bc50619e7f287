"""A stream removes from its tables what the audit before the newest has released, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import polars as pl
import pytest
from deltalake import write_deltalake
from tests.batch_proofs import a_proof
from tests.unit.audit.documents import certify, findings

from recount.declare.columns import BATCH, GENERATION, RESULT_TIME, REVISION
from recount.declare.operators.nodes import WINDOW_END
from recount.engine.commit.stream_tables import BatchRows, StreamTables
from recount.engine.stage.intake import LATE_SCHEMA, REJECTED_SCHEMA
from recount.engine.state.graph_state import STATE_SCHEMA
from recount.engine.upkeep.trimming import AgeingRows
from recount.tables.batch_proofs import removable
from recount.tables.places import Released, Tables

RESULTS = {"key": pl.String(), WINDOW_END: pl.Int64()}
TOTALS = {"key": pl.String(), RESULT_TIME: pl.Int64(), REVISION: pl.Int32()}
COPIES = {"key": pl.String(), RESULT_TIME: pl.Int64()}
RELEASED = Released(before_ms=100, cut=(1, 7), offsets={"clicks": {0: 5}})


def audited(root: Path, *released: Released | None, rows: Released | None = None) -> None:
    """Complete audits, oldest first, with certificates of what each has ``released``; ``rows``: what all rows say."""
    documents = []
    for number, one in enumerate(released):
        told = {"audit": f"night-{number}", "released": one and asdict(one)}
        certify(root / "reports", {**findings(told["audit"]), **told, "stream": "clicks"})
        documents.append(json.dumps({**told, "finished_ms": number, "released": rows and asdict(rows)}))
    write_deltalake(Tables(str(root)).audit("clicks", "runs"), pl.DataFrame({"document": documents}), mode="overwrite")


def windows(ends: Sequence[int | None]) -> pl.DataFrame:
    return pl.DataFrame({"key": [f"{end}" for end in ends], WINDOW_END: ends}, RESULTS)


def filled(root: Path) -> StreamTables:
    """The same rows in batches 1/7 and 1/8, of which only the first was judged."""
    tables = StreamTables(
        "clicks",
        str(root),
        state=STATE_SCHEMA,
        outputs={"results": RESULTS, "copies": COPIES, "totals": TOTALS, "others": COPIES},
        ageing={
            name: AgeingRows(by=by, key="key")
            for name, by in {"results": "window", "copies": "record", "totals": "table", "others": None}.items()
        },
        reports=str(root / "reports"),
    )
    tables.create()
    copies = pl.DataFrame({"key": ["a", "b"], RESULT_TIME: [99, 100]}, COPIES)
    changes = [("a", 97, 0), ("a", 98, 1), ("b", 99, 0), ("b", 100, 1), ("c", 1, 0), (None, 2, 0), (None, 3, 1)]
    totals = pl.DataFrame(changes, TOTALS, orient="row")
    late = pl.DataFrame({"offset": [1, 2, 3], "stream_time_ms": [99, 100, None]})
    bad = pl.DataFrame({"topic": "clicks", "partition": [0, 0, 1], "offset": [4, 5, 4]})
    rejected = {name: kind for name, kind in REJECTED_SCHEMA.items() if not name.startswith("record_")}
    for batch in (7, 8):
        tables.append(
            BatchRows(
                state=pl.DataFrame(schema=STATE_SCHEMA),
                late=pl.concat([pl.DataFrame(schema=LATE_SCHEMA), late], how="diagonal_relaxed"),
                rejected=pl.concat([pl.DataFrame(schema=rejected), bad], how="diagonal_relaxed"),
                emitted={"results": windows([None, 99, 100]), "copies": copies, "totals": totals, "others": copies},
            ),
            a_proof(batch, generation=1),
        )
    return tables


def left(tables: StreamTables, batch: int) -> dict[str, list[object]]:
    columns = {"results": WINDOW_END, "copies": RESULT_TIME, "totals": RESULT_TIME, "others": RESULT_TIME}
    shown = {name: (tables.outputs[name], column) for name, column in columns.items()}
    shown |= {"late": (tables.late, "stream_time_ms"), "rejected": (tables.rejected, "offset")}
    return {
        name: sorted(table.read().filter(pl.col(BATCH) == batch).collect()[column].to_list(), key=str)
        for name, (table, column) in shown.items()
    }


EVERY = {
    "results": [None, 99, 100],
    "copies": [99, 100],
    "totals": [1, 2, 3, 97, 98, 99, 100],
    "others": [99, 100],
    "late": [99, 100, None],
    "rejected": [4, 5, 4],
}


ALL = {name: sorted(values, key=str) for name, values in EVERY.items()}


def test_what_was_released_goes_and_a_table_and_what_was_not_judged_stay(tmp_path: Path) -> None:
    tables = filled(tmp_path)
    audited(tmp_path, RELEASED, None)
    tables.compaction.round()
    judged = {"results": [None, 100], "copies": [100], "late": [100, None]}
    judged |= {"totals": [1, 3, 98, 100], "others": [99, 100], "rejected": [5, 4]}
    assert left(tables, 7) == {name: sorted(values, key=str) for name, values in judged.items()}
    assert left(tables, 8) == {**ALL, "rejected": [4, 5]}, "a rejected record goes by its offset"
    versions = [len(list(Path(table.path, "_delta_log").iterdir())) for table in tables.outputs.values()]
    tables.trimming.trim()
    assert versions == [len(list(Path(table.path, "_delta_log").iterdir())) for table in tables.outputs.values()]
    assert [entry.proof.batch for entry in tables.history.newest_first()] == [8, 7], "the ledger is as it was"


@pytest.mark.parametrize("released", [(), (RELEASED,), (None, RELEASED)])
def test_what_only_the_newest_audit_released_stays(tmp_path: Path, released: Sequence[Released | None]) -> None:
    tables = filled(tmp_path)
    if released:
        audited(tmp_path, *released)
    tables.trimming.trim()
    assert left(tables, 7) == left(tables, 8) == ALL


def test_a_row_of_an_audit_releases_nothing_and_neither_does_one_that_has_no_certificate_which_says_so(
    tmp_path: Path,
) -> None:
    tables, certificates = filled(tmp_path), tmp_path / "reports" / "certificates" / "clicks"
    audited(tmp_path, None, None, rows=RELEASED)
    tables.trimming.trim()
    assert left(tables, 7) == ALL
    audited(tmp_path, RELEASED, RELEASED)
    certify(tmp_path / "reports", {**findings("night-0"), "stream": "clicks"})
    tables.trimming.trim()
    assert left(tables, 7) == ALL, "it is of an earlier release"
    text = (certificates / "night-1.json").read_text()
    (certificates / "night-0.json").write_text(text.replace('"before_ms": 100', '"before_ms": 99'))
    assert removable(str(tmp_path), str(tmp_path / "reports"), "clicks") is None
    (certificates / "night-0.json").unlink()
    assert removable(str(tmp_path), str(tmp_path / "reports"), "clicks") is None
    certify(tmp_path / "reports", {**findings("night-0"), "stream": "clicks", "released": asdict(RELEASED)})
    assert removable(str(tmp_path), str(tmp_path / "reports"), "clicks") == RELEASED


def test_the_state_of_a_graph_goes_before_the_last_snapshot_but_one(tmp_path: Path) -> None:
    tables = StreamTables("clicks", str(tmp_path), state=STATE_SCHEMA, outputs={})
    tables.create()
    row = {"state": "counts", "rows": b"", "many": 0, "part": 0}
    nothing = pl.DataFrame(schema=LATE_SCHEMA)
    for batch in range(9):
        state = pl.DataFrame([{**row, "snapshot": batch in (2, 5, 7)}], STATE_SCHEMA)
        tables.append(BatchRows(state=state, late=nothing, rejected=nothing, emitted={}), a_proof(batch))
    tables.trimming.trim()
    assert tables.state.read().select(GENERATION, BATCH).sort(BATCH).collect().rows() == [(0, n) for n in (5, 6, 7, 8)]
