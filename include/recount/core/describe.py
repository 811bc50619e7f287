"""A topology in words and as a Mermaid diagram, from the declaration alone.

>>> from recount.core.expressions import col
>>> from recount.core.schema import LONG, RecordSchema
>>> from recount.core.topics import Topic
>>> from recount.core.topology import stream
>>> orders = Topic(name="orders", key="order_id", value=RecordSchema.of(amount=LONG))
>>> high = Topic(name="high-value-orders", key="order_id")
>>> print(describe(Topology(name="routing", sinks=[stream(orders).filter(col("amount") > 100).to(high)])))
stream routing
  1. source orders
  2. filter (amount > 100)  <- 1
  3. sink high-value-orders, table high_value_orders  <- 2
"""

from __future__ import annotations

from recount.core.nodes import Node, Sink, Source
from recount.core.stateless import Through
from recount.core.topology import Topology

_ESCAPED = {'"': "#quot;", "<": "#lt;", ">": "#gt;"}


def describe(topology: Topology) -> str:
    """Every operator on a line of its own, numbered, with the numbers of those it reads."""
    numbers = _numbered(topology)
    lines = [f"stream {topology.name}"]
    for node, number in numbers.items():
        above = ", ".join(str(numbers[one]) for one in node.inputs)
        lines.append(f"  {number}. {node}" + (f"  <- {above}" if above else ""))
    return "\n".join(lines)


def mermaid(topology: Topology) -> str:
    """The same as a Mermaid flowchart; topics are cylinders, so that several diagrams can be read together."""
    numbers = _numbered(topology)
    lines = ["flowchart TD", f"  %% stream {topology.name}"]
    for node, number in numbers.items():
        opening, closing = ("[(", ")]") if isinstance(node, Source | Sink | Through) else ("[", "]")
        lines.append(f'  n{number}{opening}"{_escaped(str(node))}"{closing}')
        lines.extend(f"  n{numbers[above]} --> n{number}" for above in node.inputs)
    return "\n".join(lines)


def _numbered(topology: Topology) -> dict[Node, int]:
    return {node: number for number, node in enumerate(topology.nodes(), start=1)}


def _escaped(text: str) -> str:
    return "".join(_ESCAPED.get(character, character) for character in text)
