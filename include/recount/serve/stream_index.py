"""What can be asked of a stream, and how far it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from recount.core.tables import Tables
from recount.core.topology import Topology
from recount.serve.answer import reading
from recount.serve.asked_sink import AskedSink
from recount.serve.moment import Audits, JudgedTo, Moment, NotReady


@dataclass(frozen=True, kw_only=True)
class Listed:
    """``topology`` with its newest batch, or why it has none, and its newest audit."""

    topology: Topology
    moment: Moment | NotReady
    judged: JudgedTo | None

    @property
    def document(self) -> Mapping[str, Any]:
        """What is said of it over HTTP."""
        moment = None if isinstance(self.moment, NotReady) else self.moment
        return {
            "stream": self.topology.name,
            "state": "not ready" if moment is None else "ready",
            "reason": self.moment.reason if isinstance(self.moment, NotReady) else None,
            "as_of": moment and moment.document,
            "audit": self.judged.document(moment) if self.judged and moment else None,
            "sinks": [_of(AskedSink(self.topology, written)) for written in self.topology.written],
        }


def listed(tables: Tables, topology: Topology, now_ms: int) -> Listed:
    """``topology`` as it is now."""
    with reading(topology.name):
        moment = Moment.of(tables, topology.name, None, now_ms)
        judged = None if isinstance(moment, NotReady) else Audits.of(tables, topology).judged_to(moment.newest)
        return Listed(topology=topology, moment=moment, judged=judged)


def _of(sink: AskedSink) -> Mapping[str, Any]:
    objection = sink.objection
    return {
        "sink": sink.name,
        "path": None if objection else f"/streams/{sink.topology.name}/{sink.name}",
        "objection": objection and str(objection),
        "key": sink.key,
        "fields": {name: str(kind) for name, kind in sink.fields.items()},
    }
