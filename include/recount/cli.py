"""The ``recount`` command. Each room brings its own commands; a room is imported only when one of them is called."""

import os
from collections.abc import Callable
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.main import get_command

from recount.profile.home import Home, Project, Running
from recount.runtime.console import errors_reported, look_seldom
from recount.runtime.errors import Terminal
from recount.runtime.installation import missing_extras_named

_COMMANDS = {
    "init": ("recount.project.init_command:init", "Write a new project, with one stream and its test."),
    "jars": ("recount.profile.jars:jars", "Fetch the jars of Spark and the broker, or name them for spark-submit."),
    "up": ("recount.profile.embedded:up", "Start the embedded profile: Kafka, Airflow, Spark."),
    "status": ("recount.profile.embedded:status", "Show what runs, where, and where its logs are."),
    "down": ("recount.profile.embedded:down", "Stop everything the embedded profile started."),
    "demo": ("recount.profile.demo:demo", "Run the whole chain on a generated flow, and say what held."),
    "topics": (
        "recount.kafka.topics_on_cluster:topics",
        "Compare the declared topics with the cluster; create and repair.",
    ),
    "acls": ("recount.kafka.acls:acls", "Print the ACLs that the declared streams need on Kafka."),
    "roles": ("recount.airflow.roles:roles", "Print who may do what in Airflow; make the roles."),
    "describe": ("recount.lifecycle.declaration_commands:describe", "Print a topology."),
    "fingerprint": (
        "recount.lifecycle.declaration_commands:fingerprint",
        "Print what a declaration means, as one hash.",
    ),
    "estimate": (
        "recount.advise.estimate_command:estimate",
        "Estimate a topology's state and costs; show them measured.",
    ),
    "grace": ("recount.advise.grace_command:grace", "Say what a longer grace would have saved, and what it costs."),
    "stream": ("recount.engine.driver.stream_command:stream", "Run one stream in this process."),
    "reset": (
        "recount.lifecycle.version_commands:reset",
        "Begin a new version of a stream whose declaration has changed.",
    ),
    "stop": ("recount.kafka.leases:stop", "Stop a stream, or whatever else holds a lease, by its name."),
    "retire": ("recount.lifecycle.version_commands:retire", "Stop a stream that is wanted no longer, and forget it."),
    "upgrade": (
        "recount.lifecycle.version_commands:upgrade",
        "Go on with a stream's state under a changed declaration.",
    ),
    "set-aside": (
        "recount.lifecycle.version_commands:set_aside",
        "Let a stream go on without the record it stopped at.",
    ),
    "query": ("recount.serve.question:query", "Ask what a stream's results are, or were at a time in the past."),
    "serve": ("recount.serve.question:serve", "Answer such questions over HTTP."),
    "lens": (
        "recount.advise.lens_command:lens",
        "Say what Kafka Streams and Spark would have answered on the same log.",
    ),
    "panels": ("recount.advise.panels:panels", "Write what pages show of a longer grace and other engines."),
    "audit": ("recount.audit.audit_commands:audit", "Recompute an interval from the raw log and judge the output."),
    "verify": ("recount.audit.certificate.signing:verify", "Check a certificate, or a whole chain of them."),
    "keys": ("recount.audit.certificate.signing:keys", "Make the key that signs certificates."),
    "explain": ("recount.audit.audit_commands:explain", "Say why an output differs, down to topic-partition@offset."),
    "findings": ("recount.audit.findings.acceptances:findings", "List what audits found; accept a finding."),
    "maintain": ("recount.lifecycle.old_files:maintain", "Remove files that are kept no longer."),
    "erase": ("recount.lifecycle.erase_command:erase", "Erase one key from all that is kept, so that audits go on."),
    "backfill": ("recount.backfill.backfill_commands:backfill", "Repair windows that an audit found incomplete."),
}

app = typer.Typer(name="recount", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)


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
