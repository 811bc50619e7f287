"""The ``recount`` command. Each room brings its own commands; a room is imported only when one of them is called."""

from __future__ import annotations

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from recount.core.errors import Terminal
from recount.exit_codes import errors_reported, look_seldom
from recount.extras import missing_extras_named
from recount.local.home import Home
from recount.local.project import Project
from recount.local.running import Running

_COMMANDS = {
    "init": ("recount.new_project.init_command:init", "Write a new project, with one stream and its test."),
    "jars": ("recount.local.jars:jars", "Fetch the jars of Spark and the broker, or name them for spark-submit."),
    "up": ("recount.local.commands:up", "Start the embedded profile: Kafka, Airflow, Spark."),
    "status": ("recount.local.commands:status", "Show what runs, where, and where its logs are."),
    "down": ("recount.local.commands:down", "Stop everything the embedded profile started."),
    "demo": ("recount.play.demo_command:demo", "Run the whole chain on a generated flow, and say what held."),
    "play": ("recount.play.play_command:play", "Let the shop live: all streams in Airflow, records of all topics."),
    "topics": ("recount.kafka.commands:topics", "Compare the declared topics with the cluster; create and repair."),
    "acls": ("recount.kafka.acl_commands:acls", "Print the ACLs that the declared streams need on Kafka."),
    "roles": ("recount.airflow.role_commands:roles", "Print who may do what in Airflow; make the roles."),
    "describe": ("recount.commands.describe:describe", "Print a topology."),
    "fingerprint": ("recount.commands.meaning:fingerprint", "Print what a declaration means, as one hash."),
    "estimate": (
        "recount.spark.estimates.command:estimate",
        "Estimate a topology's state and costs; show them measured.",
    ),
    "grace": ("recount.grace.commands:grace", "Say what a longer grace would have saved, and what it costs."),
    "conformance": ("recount.commands.conformance:conformance", "Run Kafka Streams' own cases."),
    "stream": ("recount.spark.commands:stream", "Run one stream in this process."),
    "reset": ("recount.versions.commands:reset", "Begin a new version of a stream whose declaration has changed."),
    "stop": ("recount.kafka.stop_command:stop", "Stop a stream, or whatever else holds a lease, by its name."),
    "retire": ("recount.versions.commands:retire", "Stop a stream that is wanted no longer, and forget it."),
    "upgrade": ("recount.versions.commands:upgrade", "Go on with a stream's state under a changed declaration."),
    "set-aside": ("recount.versions.commands:set_aside", "Let a stream go on without the record it stopped at."),
    "query": ("recount.serve.serve_commands:query", "Ask what a stream's results are, or were at a time in the past."),
    "serve": ("recount.serve.serve_commands:serve", "Answer such questions over HTTP."),
    "lens": ("recount.lens.commands:lens", "Say what Kafka Streams and Spark would have answered on the same log."),
    "panels": ("recount.panels.panels_command:panels", "Write what pages show of a longer grace and other engines."),
    "audit": ("recount.audit.commands:audit", "Recompute an interval from the raw log and judge the output."),
    "verify": ("recount.audit.verifying:verify", "Check a certificate, or a whole chain of them."),
    "keys": ("recount.audit.verifying:keys", "Make the key that signs certificates."),
    "explain": ("recount.audit.commands:explain", "Say why an output differs, down to topic-partition@offset."),
    "findings": ("recount.audit.findings_commands:findings", "List what audits found; accept a finding."),
    "maintain": ("recount.maintenance.commands:maintain", "Remove files that are kept no longer."),
    "erase": ("recount.erasure.commands:erase", "Erase one key from all that is kept, so that audits go on."),
    "backfill": ("recount.backfill.commands:backfill", "Repair windows that an audit found incomplete."),
}

app = typer.Typer(
    name="recount",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def _tell_version(asked: bool) -> None:
    if asked:
        typer.echo(f"recount {version('recount')}")
        raise typer.Exit


@app.callback()
def _main(
    _version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Say which release this is.")
    ] = False,
) -> None:
    """Streams you can audit."""


def _attach(name: str, target: str, help_line: str) -> None:
    """Add a command that imports ``target`` (``module:function``) when called and hands all its arguments on."""

    @app.command(
        name,
        help=help_line,
        add_help_option=False,
        context_settings={"ignore_unknown_options": True, "allow_extra_args": True},
    )
    def run(context: typer.Context) -> None:
        look_seldom()
        with errors_reported(f"recount {name}"):
            _join_project()
            with missing_extras_named():
                room = _load(target)
                if not isinstance(room, typer.Typer):
                    room = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
                    room.command(name)(_load(target))
                _once_each(get_command(room))(args=context.args, prog_name=f"recount {name}")


def _once_each(command: Any) -> Any:
    """``command``, and those below it, with an error for an option that takes one value and is given several times.

    Only the last would count, and nobody would know.
    """
    parse = command.parse_args

    def parse_once(context: Any, arguments: list[str]) -> Any:
        _, _, given = command.make_parser(context).parse_args(args=list(arguments))
        for one in dict.fromkeys(given):
            takes_one = one.param_type_name == "option" and not (one.multiple or one.count or one.is_flag)
            if takes_one and given.count(one) > 1:
                context.fail(f"{one.opts[0]} is given {given.count(one)} times; it takes one value")
        return parse(context, arguments)

    command.parse_args = parse_once
    for below in getattr(command, "commands", {}).values():
        _once_each(below)
    return command


def _load(target: str) -> Callable[..., Any]:
    module, _, function = target.partition(":")
    loaded: Callable[..., Any] = getattr(import_module(module), function)
    return loaded


def _join_project() -> None:
    """Take the modules of the project at hand and the settings of its embedded profile, where that runs.

    What the environment says goes before.
    """
    try:
        project = Project.containing(Path.cwd())
    except Terminal:
        return
    running = None if "RECOUNT_PROFILE" in os.environ else Running.read(Home.of(project.root))
    if running:
        os.environ.update({key: value for key, value in running.settings.items() if not os.environ.get(key)})
    project.join(os.environ)


for _name, (_target, _help_line) in _COMMANDS.items():
    _attach(_name, _target, _help_line)
