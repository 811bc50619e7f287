"""``recount fingerprint``: what a declared stream means, as a document, or its fingerprint alone, or all fingerprints.

Airflow calls it in a process of its own: a process that has imported the declarations would not see a later deployment.
"""

from __future__ import annotations

import json
import os
from typing import Annotated

import typer

from recount.core.fingerprint import Declared
from recount.core.registry import DEFAULT_MODULES, declared
from recount.exit_codes import run_job


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


if __name__ == "__main__":
    run_job("fingerprint", fingerprint)
