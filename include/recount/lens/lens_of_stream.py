"""The lens on a stream of this installation: its ledger, its log, its declaration."""

from __future__ import annotations

from recount.core.errors import Terminal
from recount.core.settings import Settings
from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.kafka.connection import Connection
from recount.lens.lens_answer import LensAnswer
from recount.lens.looking import FIRST, looked_at
from recount.lens.modelled import Modelled
from recount.lens.raw_log_reading import records_of
from recount.lens.stretch import stretch_of
from recount.proofs import Proofs


def lens_of(
    settings: Settings,
    topology: Topology,
    *,
    start_ms: int | None = None,
    end_ms: int | None = None,
    batch_records: int | None = None,
    first: int = FIRST,
    most_records: int | None = None,
) -> LensAnswer:
    """What the other engines would have answered on the batches that were recorded in the interval.

    With ``batch_records`` they are taken to have read in batches of so many. Raises ``NoModel`` for a topology of which
    there is no model, ``Terminal`` where the interval has no records, where the log is not there any more, and where
    more than ``most_records`` would have to be read.
    """
    modelled, tables = Modelled.of(topology), Tables(settings.data)
    proofs = Proofs(state=tables.state(topology.name), moved_to=tables.ledger(topology.name))
    stretch = stretch_of(modelled, (entry.proof for entry in proofs.newest_first()), start_ms, end_ms)
    to_read = sum(stretch.records.values())
    if most_records is not None and to_read > most_records:
        raise Terminal(
            "the lens would have to read too many records",
            given=f"{to_read:,}: sessions are read from the beginning of the log",
            expected=f"{most_records:,} at most",
            remedy=f"recount lens {topology.name}",
        )
    if batch_records is not None:
        stretch = stretch.cut_anew(batch_records)
    return looked_at(
        modelled,
        stretch,
        records_of(stretch, Connection.of(settings), tables),
        start_ms=start_ms,
        end_ms=end_ms,
        batch_records=batch_records,
        first=first,
    )
