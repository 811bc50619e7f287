"""A changed declaration that goes on with the stream's state, from a recorded batch on.

Only what can be proved. Of a single aggregation, whose audit goes from cut to cut, stopped and found right up to its
last batch: changes after which its open windows mean what they meant. Records up to that batch stay judged by the
former declaration, later ones are judged by the new one, in the stream as in the audit. A window that the former
declaration had closed stays closed: a record that only the new grace lets in revises its result.

Of any other topology, which is audited from the beginning of the log: sinks and fields that are added. All else must be
declared as before. Between an operator that there was and a new sink nothing may keep state: then every state goes on,
every other output is the same, and what the new sinks must hold follows from the log and from the batch after which
they begin. A further field of a source is null in all that was read before, as it was read then.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import pyarrow as pa
from deltalake import DeltaTable, Schema

from recount.audit.carry.erased_keys import ErasedKeys
from recount.audit.carry.store import complete_runs
from recount.audit.compare.identity import above_of
from recount.audit.cut.auditable import objection_to_beginning, published_offsets, settled_ledger
from recount.audit.cut.audited_ledger import Ledger
from recount.audit.cut.kept_log import StretchLog, sources_of
from recount.declare.changes import NOTHING_ADDED, Additions, Change, Former, changes
from recount.declare.fingerprint import Declared, Document
from recount.declare.operators.nodes import Filter, Node, SelectKey, Sink, Source, WithFields
from recount.declare.operators.processing import Process
from recount.declare.operators.stateless import FlatMap, Merge, Peek, Repartition, Select, Through
from recount.declare.plain_values import PlainValue
from recount.declare.registry import Stream
from recount.declare.schema import FieldType, RecordSchema
from recount.declare.topology import Topology, Written
from recount.formats.json_values import arrow_type
from recount.kafka.connection import Connection
from recount.kafka.offsets import ends_of
from recount.lifecycle.reset import standstill
from recount.recompute.rules.result_rules import adds_up
from recount.runtime.errors import InvalidDeclaration, Terminal
from recount.runtime.settings import Settings
from recount.tables.decisions import DeclarationLog, Enacted
from recount.tables.ledger import BatchProof
from recount.tables.places import Tables

_WITHOUT_STATE = (Sink, Filter, WithFields, SelectKey, Select, FlatMap, Peek, Repartition, Through)


@dataclass(frozen=True, kw_only=True)
class Extension:
    """Additions of ``topology`` to the declaration in force, ``former``: ``sinks``, and ``fields`` by topic."""

    topology: Topology
    former: Former
    sinks: tuple[Written, ...]
    fields: Mapping[str, frozenset[str]]

    @classmethod
    def of(cls, topology: Topology, enacted: Enacted) -> Self | None:
        """Additions to the declaration ``enacted``; None where ``topology`` differs in more, or in nothing."""
        operators = enacted.document.get("operators", ())
        there = {one["topic"] for one in operators if one["operator"] in ("sink", "through")}
        sinks = [node for node in topology.written if node.topic.name not in there]
        read = {one["topic"]: one["schema"].keys() for one in operators if one["operator"] == "source"}
        found = {
            source.topic.name: frozenset(_schema(source).fields) - read[source.topic.name]
            for source in topology.sources
            if source.topic.name in read
        }
        fields = {topic: names for topic, names in found.items() if names}
        added = Additions(sinks=frozenset(node.topic.name for node in sinks), fields=fields)
        try:
            former = added.taken_from(topology)
        except InvalidDeclaration:
            return None
        if added == NOTHING_ADDED or Declared.of(former.topology).fingerprint != enacted.fingerprint:
            return None
        return cls(topology=topology, former=former, sinks=tuple(sinks), fields=fields)

    @property
    def further_columns(self) -> dict[str, dict[str, FieldType]]:
        columns = {
            node.table: {name: kind for name, kind in node.fields.items() if name not in before.fields}
            for node, before in self.former.operators.items()
            if isinstance(node, Sink | Through)
        }
        return {table: further for table, further in columns.items() if further}

    def objections(self) -> Iterator[str]:
        """Why the stream cannot go on with it, each with what can be done; none: it can."""
        if is_single(self.former.topology):
            yield (
                "audits of a single aggregation go on from the batch of a change, those of further sinks begin at the"
                " beginning of the log: declare the sink as a topology of its own, which may read the topic that this"
                " one writes"
            )
            return
        yield from self._objections_to_fields()
        yield from self._objections_to_sinks()

    def _objections_to_fields(self) -> Iterator[str]:
        for source in self.topology.sources:
            for name in sorted(self.fields.get(source.topic.name, frozenset()) & _schema(source).required):
                yield f"{source}: records without the field {name} were taken before: let it not be required"
        for node, before in self.former.operators.items():
            if isinstance(node, FlatMap | Process) and node.input.fields != before.inputs[0].fields:
                yield (
                    f"{node}: its Python function would be given records without the field and with it, and no audit"
                    " could tell which: select the fields that it needs before it"
                )

    def _objections_to_sinks(self) -> Iterator[str]:
        known = self.former.operators.keys()
        topics = {source.topic.name for source in self.former.topology.sources}
        for node in self.topology.nodes():
            if node not in known and not (isinstance(node, Source) and node.topic.name in topics):
                yield from _objections_to(node)
        stands_for = self.former.operators
        forks = {(stands_for[at], port): n for (at, port), n in self.topology.forks().items() if at in stands_for}
        if forks != self.former.topology.forks():
            yield (
                "rows that meet again in a merge go by the order of all readers, which the new sink changes: let it"
                " read another operator, or declare it as a topology of its own"
            )
        for sink in self.sinks:
            objection = objection_to_beginning(sink)
            if objection is not None:
                yield objection


def _objections_to(node: Node) -> Iterator[str]:
    if isinstance(node, Source):
        yield f"{node}: a topic that was not read before has a past of its own: declare a topology of its own"
    elif isinstance(node, Merge):
        yield f"{node}: a merge of its own needs all that its inputs have left: declare a topology of its own"
    elif not isinstance(node, _WITHOUT_STATE):
        yield (
            f"{node}: it would begin without what the stream has read before: let the new sink read the operator that"
            " there is (the very object, not another like it), or declare a topology of its own"
        )


def _schema(source: Source) -> RecordSchema | PlainValue:
    assert source.topic.value is not None, "checked by Source"
    return source.topic.value


def require_whole_log(log: StretchLog, stream: str, ledger: Ledger) -> None:
    """Raise ``Terminal`` where what the batches of ``ledger`` have read is not there any more, for the same reason."""
    try:
        log.require(ledger)
    except Terminal as gone:
        raise Terminal.of("upgrade-without-the-log", given=f"{gone.what}: {gone.given}", stream=stream) from gone


def is_single(topology: Topology) -> bool:
    """Whether ``topology`` is one source, stateless steps, one aggregation that adds up, and one sink."""
    if topology.actions or len(topology.written) != 1 or len(topology.sources) != 1:
        return False
    aggregation = topology.written[0].input
    steps = (Source, Filter, WithFields, SelectKey)
    return adds_up(aggregation) and all(isinstance(node, steps) for node in above_of(aggregation))


def upgrade(settings: Settings, stream: Stream) -> Enacted:
    """Let ``stream`` go on as it is declared now; raises ``Terminal`` with the reason where its state would be wrong.

    Does nothing where the declaration is in force already.
    """
    log, declared = DeclarationLog(settings.data, stream.name), Declared.of(stream)
    connection, tables = Connection.of(settings), Tables(settings.data)
    with standstill(connection, stream):
        last = _in_force(log, stream.name)
        if last.fingerprint == declared.fingerprint:
            return last
        goes_on = isinstance(stream, Topology) and is_single(stream)
        found = changes(last.document, declared.document)
        added = Extension.of(stream, last) if isinstance(stream, Topology) and not goes_on else None
        if added is None:
            refused = [f"{one} ({reason})" for one in found if (reason := objection(one, is_single=goes_on))]
        else:
            refused = [*_erased(settings, stream.name), *added.objections()]
        if refused:
            raise Terminal.of(
                "upgrade-impossible", given="; ".join(map(str, found)), name=stream.name, refused="; ".join(refused)
            )
        assert isinstance(stream, Topology), "of an archive every change is refused"
        ledger = settled_ledger(tables, stream, published_offsets(connection, stream))
        if added is not None:
            return _extend(connection, tables, log, last, added, ledger)
        return log.enact(
            "upgrade",
            declared,
            begins=last.begins,
            published=last.published,
            after=_require_audited(tables, stream.name, ledger).order,
            closed_ms=_closed_ms(ledger, last, last.document, declared.document),
        )


def objection(change: Change, *, is_single: bool) -> str | None:
    """Why a stream, a single aggregation or not, cannot go on with its state after ``change``; None where it can."""
    is_longer_grace = change.path.endswith("grace_ms") and None not in (change.old, change.new)
    is_longer_grace = is_longer_grace and change.new > change.old
    match change:
        case Change(operator="sink" | "through", of="", old=None):
            return "a sink can be added with no other change than further sinks and fields"
        case Change(operator="aggregation" | "stream stream join") if is_longer_grace and not is_single:
            return (
                "what every partition has closed is forgotten: records that only the longer grace takes begin it again"
            )
        case _ if not is_single:
            return "its audit goes back to the beginning of the log, and would judge all by the new declaration"
        case Change(of="", path="idle_after_ms" | "max_future_ms"):
            return None
        case Change(operator="aggregation", path="windows.grace_ms"):
            return None if is_longer_grace else "records that were counted would be late"
        case Change(operator="source", path=path, old=None, new=str(new)) if path.startswith("schema."):
            return None if not new.endswith(" required") else "records without the field were taken before"
        case Change(operator="sink" | "through", of=""):
            return "what was written to it can no longer be judged"
        case Change(operator="aggregation", path=path) if path.startswith("aggregates."):
            return "the windows that are open have not kept its values"
    return "the results of open windows would be made of both"


def _erased(settings: Settings, stream: str) -> Iterator[str]:
    newest = ErasedKeys.of(settings, stream).newest
    if newest is not None:
        yield (
            f"a key was erased after batch {newest.generation}/{newest.batch}, and audits of another declaration begin"
            " at the beginning of the log"
        )


def _extend(
    connection: Connection, tables: Tables, log: DeclarationLog, last: Enacted, new: Extension, ledger: Ledger
) -> Enacted:
    """Let the ``new`` sinks begin, and the fields be read, after the last batch of the ledger."""
    name = new.topology.name
    taken = [node.table for node in new.sinks if DeltaTable.is_deltatable(tables.output(node.table))]
    if taken:
        raise Terminal.of("added-sink-has-a-table", given=", ".join(tables.output(table) for table in taken), name=name)
    if not ledger.proofs:
        raise Terminal.of("upgrade-without-a-batch", given="an empty ledger", name=name)
    sources = sources_of(connection, tables, new.topology, "auto")
    require_whole_log(StretchLog(connection=connection, tables=tables, sources=sources), name, ledger)
    after, topics = ledger.proofs[-1].order, [node.topic.name for node in new.sinks]
    fields = {topic: {**last.added_fields.get(topic, {}), **dict.fromkeys(n, after)} for topic, n in new.fields.items()}
    add_columns(tables, new.further_columns)
    return log.enact(
        "upgrade",
        Declared.of(new.topology),
        begins=last.begins,
        published={**last.published, **ends_of(connection, topics)},
        after=after,
        closed_ms=last.closed_ms,
        added={**last.added, **dict.fromkeys(topics, after)},
        added_fields={**last.added_fields, **fields},
    )


def _in_force(log: DeclarationLog, stream: str) -> Enacted:
    last = log.last()
    if last is None or last.kind == "reset begun":
        raise Terminal.of(
            "no-declaration-in-force",
            given=last.kind if last else "never started",
            stream=stream,
            remedy="start it" if last is None else f"finish the reset: recount reset {stream} --yes",
        )
    return last


def _require_audited(tables: Tables, stream: str, ledger: Ledger) -> BatchProof:
    """The last batch, up to which the newest audit must have found everything right."""
    proof = ledger.proofs[-1] if ledger.proofs else None
    runs = [
        run
        for run in complete_runs(tables, stream)
        if proof and (run.order, run.checkpoint_id) == (proof.order, proof.checkpoint_id)
    ]
    if proof is None or not runs or runs[-1].outcome == "violation":
        last = f"batch {proof.generation}/{proof.batch}" if proof else "no batch"
        raise Terminal.of(
            "upgrade-not-audited",
            given=f"{last}, {f'audit {runs[-1].audit}: {runs[-1].outcome}' if runs else 'no audit that ends there'}",
            stream=stream,
        )
    return proof


def _closed_ms(ledger: Ledger, last: Enacted, old: Document, new: Document) -> int | None:
    """The frontier at which, by the new grace, those windows are closed that are closed now."""
    frontier_ms = ledger.frontier_ms
    if frontier_ms is None:
        return None
    reached_ms = frontier_ms if last.closed_ms is None else max(frontier_ms, last.closed_ms)
    return reached_ms + _grace_ms(new) - _grace_ms(old)


def _grace_ms(document: Document) -> int:
    windows: list[Mapping[str, int]] = [one["windows"] for one in document["operators"] if "windows" in one]
    return windows[0]["grace_ms"]


def add_columns(tables: Tables, further: Mapping[str, Mapping[str, FieldType]]) -> None:
    """Give every output table its ``further`` columns, null in the rows that there are; those it has are left alone."""
    for name, columns in further.items():
        table = DeltaTable(tables.output(name))
        known = {field.name for field in table.schema().fields}
        new = pa.schema([(name, arrow_type(kind)) for name, kind in columns.items() if name not in known])
        if len(new):
            table.alter.add_columns(list(Schema.from_arrow(new).fields))
