"""The commands that a page shows, and whether each could be typed: its name and its options exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import typer

from recount.cli import _COMMANDS, _load

ROOT = Path(__file__).parents[3]
TARGETS = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))


def page(name: str) -> str:
    """The text of a page of docs."""
    return (ROOT / "docs" / name).read_text()


def commands_in(text: str) -> list[str]:
    """Every `recount …` and `make …` of ``text``, in a line or in a block of a shell."""
    blocks = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [one for one in (*lines, *re.findall(r"`([^`\n]+)`", text)) if re.match(r"(recount|make) [a-z]", one)]


def require_typable(command: str) -> None:
    """Raise unless ``command`` is a target of the Makefile, or a command of recount with arguments that it takes."""
    program, name, *arguments = shlex.split(command)
    if program == "make":
        assert name in TARGETS, command
        return
    room = _load(_COMMANDS[name][0])
    if not isinstance(room, typer.Typer):
        typed = typer.Typer()
        typed.command()(room)
        room = typed
    typer.main.get_command(room).make_context(name, arguments)
