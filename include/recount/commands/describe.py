"""``recount describe``: the declared streams in words or as diagrams."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from recount.audit.topologies.objections import objections
from recount.core.archive import Archive
from recount.core.describe import describe as in_words
from recount.core.describe import mermaid as as_mermaid
from recount.core.durations import readable
from recount.core.errors import Terminal
from recount.core.expression_types import made_double
from recount.core.ranges import expressions_of
from recount.core.registry import DEFAULT_MODULES, declared
from recount.core.short_lived import kept_for_ms
from recount.core.topology import Topology


def describe(
    stream: Annotated[str | None, typer.Argument(help="One stream; without it, all that are declared.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid flowcharts instead of text.")] = False,
) -> None:
    """Print the operators of the declared streams, and why audits refuse one where they do."""
    modules = os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)
    declarations = declared(modules)
    if not declarations.streams:
        raise Terminal(
            "no stream is declared",
            given=modules,
            expected="a Topology or an Archive at the top level of one of the modules",
            remedy="bind it to a name at the top level: a list or a function hides it",
        )
    streams = (
        [declarations.stream(stream)] if stream else sorted(declarations.streams.values(), key=lambda one: one.name)
    )
    drawn = [one for one in streams if isinstance(one, Topology)]
    typer.echo("\n\n".join(map(as_mermaid, drawn) if mermaid else map(_in_words, streams)))


def _in_words(stream: Topology | Archive) -> str:
    if isinstance(stream, Topology):
        refused = [f"  audits refuse it: {one}" for one in objections(stream)]
        kept = {node.topic.name: kept_for_ms(node.topic) for node in stream.written}
        deleted = [
            f"  Kafka deletes results in {topic} {readable(kept_ms)} after their event time: retention_ms of the topic"
            for topic, kept_ms in kept.items()
            if kept_ms is not None
        ]
        return "\n".join([in_words(stream), *_doubles(stream), *deleted, *refused])
    topic = stream.topic.name
    return f"stream {stream.name}\n  every record of {topic} as it came, to the table archive/{topic}"


def _doubles(topology: Topology) -> list[str]:
    """A line for each expression that makes a DOUBLE of a decimal without a word, which is no number of money."""
    trees = [(tree, node.inputs[0].fields) for node in topology.nodes() for tree in expressions_of(node)]
    parts = {str(part): None for tree, fields in trees for part in made_double(tree, fields)}
    return [
        f"  {part} is a DOUBLE, which rounds, though a decimal goes into it: write a constant as"
        ' Decimal("1.0725"), declare the other field as a decimal, or multiply the decimal by 1.0 if a DOUBLE is meant'
        for part in parts
    ]
