"""All sinks of a topology, judged: one row for each row that anybody knows of, in the same columns for every sink."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from recount.audit.compare.claims import (
    AT_MS,
    IDENTITY,
    ROW,
    in_delta,
    in_delta_since,
    judged_before,
    of_recompute,
    on_kafka,
    row_text,
)
from recount.audit.compare.correction_claims import COMPLETE_ROWS, SAID, Corrections, kept_for_backfills, uncorrected
from recount.audit.compare.differences import SEEN_TEXT, SINK, TABLE, compared
from recount.audit.compare.fidelity import EXPIRED, LOST, MATCH, PLACES
from recount.audit.compare.identity import Identity
from recount.audit.compare.published import DELTA, KAFKA, OF_BACKFILL
from recount.audit.compare.results import CHARTED, COMPLETE, EXPECTED, PUBLISHED, Chart, chart_of
from recount.audit.compare.sink_verdicts import SEEN, judged_latest, judged_rows, shown_of
from recount.audit.cut.audited_ledger import Order
from recount.audit.cut.standing import (
    added_to,
    not_among,
    read_again,
    to_keep,
    untold,
    with_added,
    with_carried,
    without_taken_back,
)
from recount.audit.explain.completeness import COMPLETENESS, CORRECTION, KEPT, MISSED, REPAIRED
from recount.declare.operators.nodes import WINDOW_END
from recount.declare.topics import UNLIMITED_RETENTION_MS
from recount.declare.topology import Written
from recount.kafka.connection import Connection
from recount.recompute.digests import DigestedLog
from recount.recompute.frames import duck_functions as F
from recount.recompute.frames.duck_columns import Column
from recount.recompute.frames.duck_frames import Frame, once, union_of
from recount.recompute.frames.duck_handover import Handover
from recount.recompute.operators.frontiers import ALL_DUE, NONE_DUE
from recount.recompute.operators.recomputed import Recomputed
from recount.recompute.raw_log import Ranges
from recount.runtime.times import clock_ms
from recount.tables.places import Released, Tables, ageing

_VERDICTS = (*(f"{place}_verdict" for place in PLACES), COMPLETENESS)


@dataclass(frozen=True, kw_only=True)
class Before:
    """State that the audit before left: its cut ``seed``, and by table the claims ``carried`` over to this one."""

    seed: Order
    carried: Mapping[str, Frame]


@dataclass(frozen=True, kw_only=True)
class Judge:
    """Judges what was written up to ``cut``; ``published`` are by topic the offsets of the sinks' topics.

    Many records of these are read from ``sent``.

    After an audit ``before`` these are what nobody has read yet, and of the tables the later batches are read.
    ``corrections`` None: nobody has ever corrected anything, and every record is the stream's.
    A row that is ``released`` may be removed from its table. It is not asked what unlimited grace would make of it.
    ``charted`` is the sink and its field that the chart shows.
    """

    handover: Handover
    connection: Connection
    sent: DigestedLog
    tables: Tables
    cut: Order
    published: Mapping[str, Ranges]
    before: Before | None = None
    corrections: Corrections | None = None
    released: Released | None = None
    charted: tuple[Written, str] | None = None
    _claims: dict[Identity, Frame] = field(default_factory=dict)

    def judged(self, identities: list[Identity], truth: Recomputed, complete: Recomputed) -> Frame:
        """The rows of all sinks: ``sink`` (a topic), ``table``, the identity, verdicts, and what each side has.

        ``<side>_text`` is JSON, null where all is well; ``<place>_evidence`` names offsets and batches,
        ``expected_at_ms`` is event time; ``compared`` holds what the sides say as values (``differences.compared``).
        """
        return union_of([self._sink(identity, truth, complete) for identity in identities])

    def chart(self, judged: Frame) -> Chart | None:
        if self.charted is None or not {*CHARTED.values()} <= {*judged.columns}:
            return None
        written, name = self.charted
        return chart_of(judged.where(F.col(SINK) == written.topic.name), name, written.fields[name])

    def to_keep(self, judged: Frame, since_ms: int) -> dict[str, Frame]:
        """Return by table the claims that the audit after this one needs; ``judged`` is what ``judged`` returned."""
        return {
            identity.written.table: to_keep(
                claims, judged.where(F.col(SINK) == identity.written.topic.name), identity, since_ms
            )
            for identity, claims in self._claims.items()
        }

    def corrections_to_keep(self, judged: Frame) -> dict[str, Frame]:
        """The same of the claims about corrections; nothing of tables without any."""
        if self.corrections is None:
            return {}
        found = {
            identity.written.table: self.corrections.to_keep(
                judged.where(F.col(SINK) == identity.written.topic.name), identity
            )
            for identity in self._claims
        }
        return {table: claims for table, claims in found.items() if claims is not None}

    def _sink(self, identity: Identity, truth: Recomputed, complete: Recomputed) -> Frame:
        written = identity.written
        all_due = complete.again if written in complete.again else complete.results
        claims = [
            of_recompute(truth.results[written], identity, EXPECTED),
            of_recompute(all_due[written], identity, COMPLETE),
            self._in_delta(identity),
        ]
        ranges = self.published[written.topic.name]
        of_stream, of_backfills = self._apart(on_kafka(self.handover, self.connection, self.sent, identity, ranges))
        lined_up = union_of([*claims, of_stream])
        carried = self._carried(identity)
        if carried is not None and written in complete.taken_back:
            gone = once(of_recompute(complete.taken_back[written], identity, COMPLETE))
            carried = once(without_taken_back(self._with_judged(carried, gone, identity), gone, identity))
        if carried is not None and identity.is_latest and identity.has_bounds:
            lined_up = once(lined_up)
            carried = self._with_earlier(lined_up, carried, identity, truth, complete)
        if carried is not None and identity.is_by_time:
            lined_up = self._with_added_to(once(lined_up), carried, identity)
        if carried is not None:
            since_ms, ends_after_ms = complete.again_since_ms.get(written), complete.again_ends_after_ms.get(written)
            lined_up = with_carried(lined_up, carried, identity, since_ms, ends_after_ms)
        lined_up = self._claims[identity] = once(lined_up)
        kept_since_ms, in_delta_since_ms = _kept_since_ms(identity), self._in_delta_since_ms(written)
        is_aged = ageing(written) != "table"
        if identity.is_latest:
            held_after_ms = _held_after_ms(identity, truth)
            replaced_since_ms = NONE_DUE if is_aged else in_delta_since_ms
            judged = judged_latest(
                lined_up,
                identity,
                held_after_ms,
                kept_since_ms,
                replaced_since_ms,
                is_whole_since=self._is_whole_since(),
            )
        else:
            judged = judged_rows(lined_up, identity)
        judged = judged.with_column(COMPLETE_ROWS, _complete_rows(identity))
        if self.corrections is None:
            judged = uncorrected(judged, identity)
        else:
            judged = self.corrections.judged(judged, lined_up, identity, of_backfills, kept_since_ms)
        is_gone = (F.col(f"{KAFKA}_verdict") == LOST) & _may_be_gone(identity)
        kafka = F.when(is_gone, EXPIRED).otherwise(F.col(f"{KAFKA}_verdict"))
        is_released = _at(written) < F.lit(in_delta_since_ms) if is_aged else F.lit(False)
        is_released = F.coalesce(is_released, F.lit(False))
        delta = F.when((F.col(f"{DELTA}_verdict") == LOST) & is_released, EXPIRED)
        completeness = F.when(F.col(COMPLETENESS).is_in([MISSED, REPAIRED]) & is_released, KEPT)
        judged = judged.with_columns(
            {
                f"{KAFKA}_verdict": kafka,
                f"{DELTA}_verdict": delta.otherwise(F.col(f"{DELTA}_verdict")),
                COMPLETENESS: completeness.otherwise(F.col(COMPLETENESS)),
            }
        )
        return judged.select(
            F.lit(written.topic.name).alias(SINK),
            F.lit(written.table).alias(TABLE),
            *IDENTITY,
            *_VERDICTS,
            F.col(f"{EXPECTED}_entry").part(AT_MS).alias("expected_at_ms"),
            *(_text(f"{side}_entry").alias(f"{side}_text") for side in (EXPECTED, COMPLETE)),
            *(
                _text(shown_of(place) if identity.is_latest else f"{place}_entry").alias(f"{place}_text")
                for place in PLACES
            ),
            *(f"{place}_evidence" for place in PLACES),
            CORRECTION,
            SAID,
            _seen_text().alias(SEEN_TEXT),
            *kept_for_backfills(),
            compared(identity, _or_none(kept_since_ms), _or_none(in_delta_since_ms) if is_aged else None),
            *(_charted(self.charted[1]) if self.charted and self.charted[0] == written else ()),
        )

    def _apart(self, published: Frame) -> tuple[Frame, Frame | None]:
        """Return what Kafka has of the stream, and of backfills; all of the stream where nothing was ever corrected."""
        if self.corrections is None:
            return published.drop(OF_BACKFILL), None
        published = once(published)
        ours, theirs = published.where(~F.col(OF_BACKFILL)), published.where(OF_BACKFILL)
        return ours.drop(OF_BACKFILL), theirs.drop(OF_BACKFILL)

    def _in_delta_since_ms(self, written: Written) -> int:
        """The time from which on the sink's table keeps its rows: older ones the stream may have removed."""
        return NONE_DUE if self.released is None or ageing(written) is None else self.released.before_ms

    def _is_whole_since(self) -> bool:
        """Whether no row of a batch after the audit before may have been removed."""
        return self.before is not None and self.released is not None and self.released.cut <= self.before.seed

    def _carried(self, identity: Identity) -> Frame | None:
        return None if self.before is None else self.before.carried.get(identity.written.table)

    def _with_earlier(
        self, fresh: Frame, carried: Frame, identity: Identity, truth: Recomputed, complete: Recomputed
    ) -> Frame:
        """With what was judged of windows that were let go, and are written again, or that records have added to."""
        written = identity.written
        sides = {side: one.added.get(written) for side, one in ((EXPECTED, truth), (COMPLETE, complete))}
        added = [of_recompute(rows, identity, side) for side, rows in sides.items() if rows is not None]
        asked = union_of([untold(fresh, carried), *(one.select(*IDENTITY) for one in added)])
        asked = once(not_among(asked.distinct(), carried))
        if not asked.is_empty():
            carried = carried.union(self._judged_before(identity, asked))
        further = once(union_of(added)) if added else None
        if further is None or further.is_empty():
            return carried
        return with_added(carried, further, identity)

    def _with_added_to(self, fresh: Frame, carried: Frame, identity: Identity) -> Frame:
        return fresh.union(self._judged_before(identity, added_to(fresh, carried)))

    def _with_judged(self, carried: Frame, gone: Frame, identity: Identity) -> Frame:
        """With what was judged of the rows that are ``gone`` now, where nothing was carried of them."""
        asked = not_among(gone, carried)
        return carried if asked.is_empty() else carried.union(self._judged_before(identity, asked))

    def _judged_before(self, identity: Identity, asked: Frame) -> Frame:
        assert self.before is not None
        return judged_before(self.handover.database, self.tables, identity, self.before.seed, asked)

    def _in_delta(self, identity: Identity) -> Frame:
        carried = self._carried(identity)
        if self.before is None or carried is None:
            return in_delta(self.handover.database, self.tables, identity, self.cut)
        seed, wrong = self.before.seed, read_again(carried)
        return in_delta_since(self.handover.database, self.tables, identity, self.cut, seed, wrong)


def _held_after_ms(identity: Identity, truth: Recomputed) -> int:
    return ALL_DUE if identity.suppression is None else truth.held_after_ms[identity.suppression]


def _may_be_gone(identity: Identity) -> Column:
    """Whether retention, or a later record of the same key, can have taken the record from the topic."""
    topic = identity.written.topic
    if "compact" in topic.cleanup_policy and not identity.is_latest:
        return F.lit(True)
    return F.coalesce(F.col(f"{EXPECTED}_entry").part(AT_MS) < F.lit(_kept_since_ms(identity)), F.lit(False))


def _at(written: Written) -> Column:
    """Return the time by which a row ages that no other replaces."""
    if ageing(written) == "window":
        return F.col(WINDOW_END)
    return F.coalesce(*(F.col(f"{side}_entry").part(AT_MS) for side in (EXPECTED, COMPLETE)))


def _or_none(since_ms: int) -> int | None:
    return None if since_ms == NONE_DUE else since_ms


def _kept_since_ms(identity: Identity) -> int:
    """The time from which on the topic keeps its records."""
    retention_ms = identity.written.topic.retention_ms
    return NONE_DUE if retention_ms == UNLIMITED_RETENTION_MS else clock_ms() - retention_ms


def _complete_rows(identity: Identity) -> Column:
    """The rows that unlimited grace gives."""
    if not identity.is_latest:
        return F.col(COMPLETE)
    entry = F.col(f"{COMPLETE}_entry")
    return F.filtered(F.array(entry), lambda one: one.is_not_null())


def _charted(name: str) -> list[Column]:
    """The values of ``name`` on each side, and those that readers see, where a backfill has corrected the row."""
    seen, kafka = F.element_at(SEEN, F.lit(1)), F.col(f"{KAFKA}_entry")
    sides = {
        EXPECTED: F.col(f"{EXPECTED}_entry"),
        PUBLISHED: F.when(F.col(COMPLETENESS) == REPAIRED, seen).otherwise(kafka),
        COMPLETE: F.col(f"{COMPLETE}_entry"),
    }
    return [entry.part(ROW).part(name).alias(CHARTED[side]) for side, entry in sides.items()]


def _seen_text() -> Column:
    """Return what readers see of the row: what the stream was to write, or else what a backfill has made of it."""
    seen = F.element_at(SEEN, F.lit(1))
    return F.when(F.col(SEEN).is_null(), _text(f"{EXPECTED}_entry")).otherwise(F.when(_is_told(), row_text(seen)))


def _text(entry: str) -> Column:
    """The row and its time; ``deleted`` where there is a deletion, null where there is nothing, or all is well."""
    return F.when(_is_told(), row_text(entry))


def _is_told() -> Column:
    """Whether a difference or a miss says what each side has."""
    is_well = F.col(COMPLETENESS) == KEPT
    for place in PLACES:
        is_well &= F.col(f"{place}_verdict").is_in([MATCH, EXPIRED])
    return ~is_well
