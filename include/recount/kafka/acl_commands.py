"""``recount acls``: what the roles must be allowed for the declared streams."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Iterable
from dataclasses import asdict
from enum import StrEnum
from itertools import groupby
from typing import Annotated, get_args

import typer

from recount.core.errors import Terminal
from recount.core.registry import declared
from recount.core.settings import Role, Settings
from recount.kafka.acls import Acl, acls_of
from recount.kafka.connection import Connection

_SERVERS, _CONFIGURATION = '"$BOOTSTRAP_SERVERS"', '"$ADMIN_PROPERTIES"'


class Form(StrEnum):
    """How ACLs are printed."""

    commands = "commands"
    json = "json"


def acls(
    role: Annotated[str | None, typer.Option(help="stream, audit or admin; all three unless told")] = None,
    principal: Annotated[
        list[str] | None, typer.Option(help="ROLE=PRINCIPAL, such as stream=User:CN=recount; may be repeated")
    ] = None,
    form: Annotated[Form, typer.Option("--as", help="kafka-acls.sh commands, or JSON")] = Form.commands,
) -> None:
    """Print the ACLs that the declared streams need, exactly. Neither brokers nor passwords are needed for it."""
    settings = Settings.from_environment(os.environ)
    connection = Connection(bootstrap_servers=settings.bootstrap_servers, prefix=settings.prefix)
    roles = _roles(role)
    named = principals(principal or ())
    found = [acl for acl in acls_of(declared(settings.topologies), connection, settings.profile) if acl.role in roles]
    print(as_json(found, named) if form is Form.json else as_commands(found, named))


def as_commands(acls: Iterable[Acl], principals: dict[Role, str]) -> str:
    """A line of ``kafka-acls.sh`` for all operations on each resource."""
    lines = ["# BOOTSTRAP_SERVERS and ADMIN_PROPERTIES: the brokers, and a client that may alter ACLs (Cluster Alter)"]
    for (role, resource, name), group in groupby(acls, lambda acl: (acl.role, acl.resource, acl.name)):
        operations = " ".join(f"--operation {acl.operation}" for acl in group)
        lines.append(
            f"kafka-acls.sh --bootstrap-server {_SERVERS} --command-config {_CONFIGURATION} --add"
            f" --allow-principal {shlex.quote(principals[role])} {operations}"
            f" --{resource} {shlex.quote(name)}"
        )
    return "\n".join(lines)


def as_json(acls: Iterable[Acl], principals: dict[Role, str]) -> str:
    """An array of objects, one for each ACL."""
    told = [
        {"principal": principals[acl.role], **asdict(acl), "pattern": "literal", "host": "*", "permission": "Allow"}
        for acl in acls
    ]
    return json.dumps(told, indent=2)


def principals(given: Iterable[str]) -> dict[Role, str]:
    """Who acts in each role: ``User:`` with the name of the role unless ``given`` says another."""
    found: dict[Role, str] = {role: f"User:{role}" for role in _roles(None)}
    for text in given:
        role, _, name = text.partition("=")
        kind, _, who = name.partition(":")
        if role not in found or not kind or not who:
            raise Terminal(
                "no principal of a role",
                given=text,
                expected="ROLE=PRINCIPAL, the role stream, audit or admin",
                remedy="write --principal stream=User:recount-stream",
            )
        found[_roles(role)[0]] = name
    return found


def _roles(named: str | None) -> tuple[Role, ...]:
    roles: tuple[Role, ...] = get_args(Role)
    if named is not None and named not in roles:
        raise Terminal(
            "no such role", given=named, expected=f"one of {', '.join(roles)}", remedy="leave it out for all"
        )
    return roles if named is None else tuple(role for role in roles if role == named)
