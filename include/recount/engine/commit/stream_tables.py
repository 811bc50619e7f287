"""The Delta tables of one stream: state, its batch ledger, late records, rejected records, outputs."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import polars as pl

from recount.declare.columns import BATCH, GENERATION
from recount.engine.commit.delta_table import DELTA_LOG_KEPT_MS, AppendOnlyTable, LedgerTable, TableFile
from recount.engine.stage.intake import LATE_SCHEMA, REJECTED_SCHEMA
from recount.engine.state.graph_state import bring_up
from recount.engine.upkeep.trimming import AgeingRows, Compaction, Trimming
from recount.runtime.errors import Terminal
from recount.tables.batch_proofs import Proofs
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

Schema = Mapping[str, pl.DataType]
Order = tuple[int, int]
"""Generation and batch."""

STATE, FILES = "state", "files"
FILES_SCHEMA = {"table": pl.String(), "path": pl.String(), **dict.fromkeys(("size", "rows", "counted"), pl.Int64())}
_BATCH: Schema = {GENERATION: pl.Int32(), BATCH: pl.Int64()}
_REJECTED = {name: kind for name, kind in REJECTED_SCHEMA.items() if not name.startswith("record_")}


@dataclass(frozen=True, kw_only=True)
class BatchRows:
    """The rows that one batch adds to the tables; ``emitted`` by table.

    Of tables that are in ``files``, ``STATE`` or those of ``emitted``, tasks have written the rows already.
    """

    state: pl.DataFrame
    late: pl.DataFrame
    rejected: pl.DataFrame
    emitted: Mapping[str, pl.DataFrame]
    files: Mapping[str, Sequence[TableFile]] = field(default_factory=dict)

    @property
    def filled(self) -> dict[str, pl.DataFrame]:
        """The tables beside the state that get rows, by the names in ``BatchProof.appended``."""
        outputs = {output_name(table): frame for table, frame in self.emitted.items()}
        every = {"late": self.late, "rejected": self.rejected, **outputs}
        return {name: frame for name, frame in every.items() if not frame.is_empty() or name in self.files}


def numbered(rows: pl.DataFrame, order: Order) -> pl.DataFrame:
    """``rows`` of the batch ``order`` as its tables have them."""
    generation, batch = order
    return rows.with_columns(pl.lit(generation, pl.Int32).alias(GENERATION), pl.lit(batch, pl.Int64).alias(BATCH))


def filed(tables: Iterable[tuple[str, str, pl.DataFrame]], order: Order) -> pl.DataFrame:
    """New files (``FILES_SCHEMA``) with the rows of the batch ``order``: of ``tables`` by name and folder.

    Nobody sees them until they are committed.
    """
    files = [
        (name, TableFile.write(folder, numbered(rows, order))) for name, folder, rows in tables if not rows.is_empty()
    ]
    return pl.DataFrame(
        [(name, file.path, file.size, file.rows, file.counted) for name, file in files], FILES_SCHEMA, orient="row"
    )


def files_in(filed: pl.DataFrame) -> dict[str, list[TableFile]]:
    """The files of ``filed`` by table, as ``BatchRows`` has them."""
    files: dict[str, list[TableFile]] = {}
    for table, path, size, rows, counted in filed.iter_rows():
        files.setdefault(table, []).append(TableFile(path=path, size=size, rows=rows, counted=counted))
    return files


class StreamTables:
    """The tables that the stream ``name`` writes below ``root``, and nobody else; ``outputs`` by table.

    Earlier versions can be read for ``delta_log_kept_ms``; for ``ageing`` and ``reports`` see ``Trimming``.
    """

    def __init__(
        self,
        name: str,
        root: str,
        *,
        state: Schema,
        outputs: Mapping[str, Schema],
        ageing: Mapping[str, AgeingRows] | None = None,
        reports: str | None = None,
        delta_log_kept_ms: int = DELTA_LOG_KEPT_MS,
    ) -> None:
        places = Tables(root)
        self._name = name

        def table(path: str, schema: Schema, *, carries_proofs: bool = False) -> AppendOnlyTable:
            return AppendOnlyTable(
                path=path, schema={**schema, **_BATCH}, carries_proofs=carries_proofs, log_kept_ms=delta_log_kept_ms
            )

        self.state = table(places.state(name), state, carries_proofs=True)
        self.late = table(places.late(name), LATE_SCHEMA)
        self.rejected = table(places.rejected(name), _REJECTED)
        self.outputs = {output: table(places.output(output), schema) for output, schema in outputs.items()}
        self.ledger = LedgerTable(places.ledger(name), self.state)
        self.history = Proofs(state=places.state(name), moved_to=places.ledger(name))
        self._named = {"late": self.late, "rejected": self.rejected}
        self._named |= {output_name(output): table for output, table in self.outputs.items()}
        others = list(self._named.values())
        self.trimming = Trimming(
            name=name,
            root=root,
            state=self.state,
            late=self.late,
            rejected=self.rejected,
            outputs=self.outputs,
            ageing=ageing or {},
            reports=reports,
        )
        self.compaction = Compaction(others, self.state, self.ledger, self.trimming.trim)
        self._all = [*others, self.state, self.ledger.table]

    @property
    def folders(self) -> dict[str, str]:
        return {name: table.path for name, table in self.outputs.items()}

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep upkeep meanwhile from taking a file that is written and not yet committed for one that is in the way."""
        with ExitStack() as held:
            for table in (*self.outputs.values(), self.state):
                held.enter_context(table.pending)
            yield

    def require_new(self) -> None:
        """Raise ``Terminal`` where a table of results has rows: before the first start they are of another stream."""
        filled = sorted(name for name, table in self.outputs.items() if table.has_rows())
        if filled:
            raise Terminal.of(
                "results-of-nobody", given=f"rows in {', '.join(f'outputs/{name}' for name in filled)}", name=self._name
            )

    def create(self) -> None:
        """Create the tables that do not exist; a state table of an earlier release gets the form of today."""
        bring_up(self.state.path)
        for table in self._all:
            table.create()

    def append(self, rows: BatchRows, proof: BatchProof) -> None:
        """Append the batch to each table; a table that has it already is left alone.

        The state comes last, for its commit carries the proof: a batch that is in the ledger is in every table. It is
        made even when the batch adds no state.
        """
        writer = _writer(proof.stream, proof.checkpoint_id)

        def append(name: str, table: AppendOnlyTable, frame: pl.DataFrame, metadata: str | None = None) -> None:
            files = rows.files.get(name, ())
            made = frame if files else numbered(frame, proof.order)
            table.append(made, writer=writer, version=proof.batch, metadata=metadata, files=files)

        with ThreadPoolExecutor(max_workers=len(self._named)) as pool:
            done = [pool.submit(append, name, self._named[name], frame) for name, frame in rows.filled.items()]
        for future in done:
            future.result()
        append(STATE, self.state, rows.state, proof.to_json())
        self.compaction.batch_appended(proof.batch)

    def lack(self, last: BatchProof, former: BatchProof | None, *, in_flight: bool) -> bool:
        """Whether a table lacks the rows of ``last``, the last batch of the ledger, before which came ``former``.

        Raises ``Terminal`` for a table that lacks rows of an earlier batch, or has some of a later one, except of the
        batch that is ``in_flight``: it was restored alone.
        """
        lacking = False
        for name, table in self._named.items():
            known = last.appended.get(name)
            before = former.appended.get(name) if former else None
            if known and not _has(table, last.stream, known):
                if known != (last.checkpoint_id, last.batch) or (before and not _has(table, last.stream, before)):
                    raise _restored(table, last, f"it lacks rows up to batch {known[1]} of checkpoint {known[0]}")
                lacking = True
            newest = table.last_version(_writer(last.stream, last.checkpoint_id))
            if newest > last.batch + in_flight:
                raise _restored(table, last, f"it has rows of batch {newest}")
        return lacking


def output_name(table: str) -> str:
    """The name of the output ``table`` in ``BatchProof.appended`` and ``BatchRows.files``."""
    return f"outputs/{table}"


def _writer(stream: str, checkpoint_id: str) -> str:
    return f"recount/{stream}/{checkpoint_id}"


def _has(table: AppendOnlyTable, stream: str, batch: tuple[str, int]) -> bool:
    checkpoint_id, number = batch
    return table.last_version(_writer(stream, checkpoint_id)) >= number


def _restored(table: AppendOnlyTable, last: BatchProof, found: str) -> Terminal:
    return Terminal.of(
        "table-of-another-time",
        given=f"{table.path}: {found}",
        stream=last.stream,
        generation=last.generation,
        batch=last.batch,
    )
