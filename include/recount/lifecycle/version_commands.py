"""Commands for the versions of a stream: reset, upgrade, retire, set-aside."""

import os
from typing import Annotated, cast

import typer

from recount.declare.groups import Archive
from recount.declare.registry import Stream, declared
from recount.declare.topology import Topology
from recount.kafka.leases import PATIENCE_S
from recount.runtime.errors import Terminal
from recount.runtime.settings import Settings

_DECLARED = "The name of the stream, as declared."


def reset(
    stream: Annotated[str, typer.Argument(help=_DECLARED)],
    begin_at: Annotated[str, typer.Option("--from", help="Where it reads from: beginning or now.")] = "beginning",
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
) -> None:
    """Begin a new version of a stopped stream; the tables of the former one are kept aside."""
    from recount.lifecycle.reset import From, Reset

    if begin_at not in ("beginning", "now"):
        raise Terminal.of("no-such-beginning", given=begin_at)
    settings, declaration = _declared(stream)
    planned = Reset(settings, declaration, cast("From", begin_at))
    if not yes:
        print(f"A new version of {stream}, from {begin_at} on. These folders are moved, as far as they exist:")
        print(*(f"  {move}" for move in planned.planned()), sep="\n")
        if isinstance(declaration, Archive) and begin_at == "beginning":
            print("What Kafka no longer holds will be in the former archive only.")
        typer.confirm("Go on?", abort=True)
    done = planned.run()
    for move in done.moved:
        print(f"moved {move}")
    print(f"{stream} is at version {done.enacted.version}: start it, and it reads from {begin_at} on")


def upgrade(stream: Annotated[str, typer.Argument(help=_DECLARED)]) -> None:
    """Let a stopped and audited stream go on with its state as it is declared now, where the change keeps it."""
    from recount.lifecycle.upgrade import upgrade as upgraded

    enacted = upgraded(*_declared(stream))
    if enacted.after is None:
        print(f"{stream} goes by this declaration already")
    else:
        print(f"{stream} goes by the new declaration after batch {enacted.after[0]}/{enacted.after[1]}")
        begun = [f"sink {topic}" for topic, after in enacted.added.items() if after == enacted.after]
        fields = [
            (topic, name, after) for topic, names in enacted.added_fields.items() for name, after in names.items()
        ]
        begun += [f"field {name} of {topic}" for topic, name, after in fields if after == enacted.after]
        print(*(f"  from there on: {one}" for one in begun), sep="\n", end="\n" if begun else "")


def retire(
    stream: Annotated[str, typer.Argument(help="The name that the stream has, or had.")],
    tables: Annotated[str, typer.Option(help="What becomes of its tables and checkpoint: keep or remove.")] = "keep",
    topics: Annotated[
        list[str] | None, typer.Option("--remove-topic", help="A topic of its results to delete; may be repeated.")
    ] = None,
    while_declared: Annotated[bool, typer.Option("--while-declared", help="Though it is declared still.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    patience_s: Annotated[float, typer.Option(min=0, help="How long to wait for the driver's end.")] = PATIENCE_S,
) -> None:
    """Stop a stream that is wanted no longer, and forget where it stands; what audits found stays on record."""
    from recount.lifecycle.retirement import Retirement

    if tables not in ("keep", "remove"):
        raise Terminal.of("no-such-fate", given=tables)
    settings = Settings.from_environment(os.environ)
    retirement = Retirement(
        settings, stream, remove_tables=tables == "remove", topics=topics or [], while_declared=while_declared
    )
    print(*retirement.planned(), sep="\n")
    if dry_run:
        print("dry run: nothing was changed")
        return
    if not yes:
        typer.confirm("Go on?", abort=True)
    retirement.run(patience_s)
    print(f"{stream} is retired")


def set_aside(
    stream: Annotated[str, typer.Argument(help=_DECLARED)],
    record: Annotated[
        str | None, typer.Argument(help="TOPIC-PARTITION@OFFSET of the record; without it the orders are listed.")
    ] = None,
    by: Annotated[str, typer.Option("--by", help="Who sets it aside; goes into the certificates.")] = "",
    because: Annotated[str, typer.Option("--because", help="Why; goes into the certificates.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the record, and whether it can be.")] = False,
) -> None:
    """Let a stream that stopped at a record go on without it: the record becomes a dead letter, `set-aside`.

    The stream must stand still, and no committed batch may have read the record. Every certificate from then on lists
    the record, with who and why.
    """
    from recount.lifecycle.setting_aside import SettingAside, listed
    from recount.tables.signed_orders import RecordPlace

    settings, declaration = _declared(stream)
    if not isinstance(declaration, Topology):
        raise Terminal.of("archive-sets-nothing-aside", given=stream)
    if record is None:
        print(*listed(settings, declaration), sep="\n")
        return
    setting_aside = SettingAside(settings=settings, topology=declaration, place=RecordPlace.from_text(record))
    found = setting_aside.checked()
    print(setting_aside.shown(found))
    if dry_run:
        print("dry run: no order was given")
        return
    order = setting_aside.run(by=by, because=because)
    print(f"{order.place} of {stream} is set aside by {order.by}: {order.because}")
    print(f"start {stream}: its next batch writes the record to {setting_aside.dead_letters}, and goes on")


def _declared(stream: str) -> tuple[Settings, Stream]:
    settings = Settings.from_environment(os.environ)
    return settings, declared(settings.topologies).stream(stream)
