"""``recount fingerprint`` and ``recount describe``: the meaning of a declaration as a hash, and a topology in words.

Airflow calls ``fingerprint`` in a process of its own: one that has imported the declarations would not see a later
deployment.
"""

import json
import os
from typing import Annotated

import typer

from recount.declare.changes import describe as in_words
from recount.declare.changes import mermaid as as_mermaid
from recount.declare.evaluation import expressions_of
from recount.declare.expression_types import made_double
from recount.declare.fingerprint import Declared
from recount.declare.groups import Archive
from recount.declare.output import kept_for_ms
from recount.declare.registry import DEFAULT_MODULES, declared
from recount.declare.topology import Topology
from recount.runtime.console import run_job
from recount.runtime.errors import Terminal
from recount.runtime.times import readable


def fingerprint(
    stream: Annotated[
        str | None, typer.Argument(help="The name of the stream, as declared; without it, all fingerprints as JSON.")
    ] = None,
    document: Annotated[bool, typer.Option("--document", help="Print the whole document as JSON.")] = False,
) -> None:
    """Print the fingerprint of a stream's declaration."""
    declarations = declared(os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES))
    if stream is None:
        typer.echo(json.dumps({name: Declared.of(one).fingerprint for name, one in declarations.streams.items()}))
        return
    said = Declared.of(declarations.stream(stream))
    typer.echo(json.dumps(said.document, sort_keys=True, indent=2) if document else said.fingerprint)


def describe(
    stream: Annotated[str | None, typer.Argument(help="One stream; without it, all that are declared.")] = None,
    mermaid: Annotated[bool, typer.Option("--mermaid", help="Print Mermaid flowcharts instead of text.")] = False,
) -> None:
    """Print the operators of the declared streams, and why audits refuse one where they do."""
    modules = os.environ.get("RECOUNT_TOPOLOGIES", DEFAULT_MODULES)
    declarations = declared(modules)
    if not declarations.streams:
        raise Terminal.of("no-stream-declared", given=modules)
    streams = (
        [declarations.stream(stream)] if stream else sorted(declarations.streams.values(), key=lambda one: one.name)
    )
    drawn = [one for one in streams if isinstance(one, Topology)]
    typer.echo("\n\n".join(map(as_mermaid, drawn) if mermaid else map(_in_words, streams)))


def _in_words(stream: Topology | Archive) -> str:
    if isinstance(stream, Topology):
        # imports Spark, which `fingerprint` does without
        from recount.audit.cut.auditable import objections

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


if __name__ == "__main__":
    run_job("fingerprint", fingerprint)
