"""The README and docs/: links, commands, places, errors and systems that they name are there."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, fields
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer
from tests.errors.errors_page import page as errors_page
from tests.errors.raised import raised_in

from recount.cli import _COMMANDS, _load
from recount.declare.registry import declared
from recount.runtime.errors import Terminal, conditions
from recount.runtime.settings import PREFIX, Settings

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


COMMANDS = [one for name in ("production", "systems", "troubleshooting") for one in commands_in(page(f"{name}.md"))]


@pytest.mark.parametrize("command", dict.fromkeys(COMMANDS))
def test_each_command_can_be_typed(command: str) -> None:
    """It is a target of the Makefile, or a command of recount with arguments that it takes."""
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


PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def headings(text: str) -> set[str]:
    """As the anchors of a page are made of them."""
    titles = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    shown = [re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", title).lower() for title in titles]
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in shown}


def broken(file: Path, text: str) -> Iterator[str]:
    """The links of ``text``, which lies in ``file``, that lead nowhere."""
    for link in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"```.*?```", "", text, flags=re.DOTALL)):
        path, _, anchor = link.partition("#")
        if link.startswith(("http://", "https://")):
            continue
        target = file.parent / path if path else file
        if not target.exists() or (anchor and anchor not in headings(target.read_text())):
            yield f"{file.relative_to(ROOT)}: {link}"


def test_every_link_leads_somewhere() -> None:
    assert [link for file in PAGES for link in broken(file, file.read_text())] == []


def test_the_readme_shows_the_declaration_that_runs_and_targets_that_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    [snippet] = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert snippet in (ROOT / "include" / "topologies" / "orders.py").read_text()
    named = set(re.findall(r"\bmake ([a-z]+)", readme))
    assert {"demo", "test", "up"} <= named <= TARGETS


def test_the_page_on_settings_lists_every_variable_and_no_other() -> None:
    listed = re.findall(r"`(RECOUNT_[A-Z_]+)`", page("own_streams.md").partition("## Settings")[2])
    assert sorted(listed) == sorted(f"{PREFIX}{field.name.upper()}" for field in fields(Settings))


def test_every_file_and_folder_on_the_page_on_architecture_exists() -> None:
    package = ROOT / "include" / "recount"
    places = re.findall(r"`([a-z_/]+(?:\.py|/))`", page("architecture.md"))
    assert len(places) > 40
    roots = (ROOT, *(package / part for part in ("", "audit", "recompute", "engine", "advise", "lifecycle")))
    assert [place for place in places if not any((root / place).exists() for root in roots)] == []


RAISED = raised_in(ROOT / "include" / "recount")


def test_the_page_of_errors_is_made_of_the_code_which_names_each_and_terminal_ones_say_what_to_do() -> None:
    assert page("errors.md") == errors_page(RAISED), "run `make errors`"
    assert [error for error in RAISED if error.branch == "Terminal" and not error.remedy] == []
    code = "".join(file.read_text() for file in (ROOT / "include" / "recount").rglob("*.py"))
    assert [condition for condition in conditions() if f'"{condition}"' not in code] == []


OF_THE_DOCUMENTS = ("State store not found", "Late events dropped by window", "RocksDB out of memory")


def test_the_page_of_troubles_shows_an_error_and_has_a_section_for_each_of_the_documents() -> None:
    text = page("troubleshooting.md")
    with pytest.raises(Terminal) as raised:
        declared("topologies.fraud").stream("fraud")
    assert f"```\nrecount describe: {raised.value}\n```" in text
    sections = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##)", text, re.MULTILINE | re.DOTALL))
    assert tuple(sections) == OF_THE_DOCUMENTS
    assert all(re.search(r"^1\. .*^2\. ", section, re.MULTILINE | re.DOTALL) for section in sections.values())
    for message in ("no memory is left for another batch", "no such stream"):
        assert f"*{message}*" in text and f"| {message} |" in page("errors.md")


SHOP = declared()
TOPICS = {written.topic.name: name for name, one in SHOP.topologies.items() for written in one.written}


@dataclass(frozen=True, kw_only=True)
class Row:
    """A line of the page."""

    id: str
    system: str
    declaration: str
    output: str
    seen: str
    certificate: str

    @property
    def streams(self) -> list[str]:
        return [name for name in names_in(self.declaration) if name in SHOP.topologies]


def names_in(cell: str) -> list[str]:
    return re.findall(r"`([a-z0-9-]+)`", cell)


def rows(text: str) -> list[Row]:
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if re.match(r"\| S\d", line)]
    names = ("id", "system", "declaration", "output", "seen", "certificate")
    return [Row(**dict(zip(names, cells, strict=True))) for cells in lines]


ROWS = rows(page("systems.md"))
OF_STREAMS = [row for row in ROWS if row.streams]


def test_every_system_has_a_row_and_every_stream_and_topic_is_in_one() -> None:
    assert [row.id for row in ROWS] == [f"S{number}" for number in range(1, 34)]
    assert [row.id for row in ROWS[:25] if not row.streams] == ["S23"], "which happens in every stream"
    assert {name for row in OF_STREAMS for name in row.streams} == set(SHOP.topologies)
    shown = {topic for row in OF_STREAMS for topic in names_in(row.output)}
    assert set(TOPICS) <= shown


@pytest.mark.parametrize("row", OF_STREAMS, ids=lambda row: row.id)
def test_streams_outputs_commands_and_certificates_of_a_row_are_there(row: Row) -> None:
    modules = re.findall(r"\(\.\./include/(\w+)/(\w+)\.py\)", row.declaration)
    assert {SHOP.modules[name] for name in row.streams} == {".".join(place) for place in modules}
    assert names_in(row.declaration) == row.streams, "a stream that is not declared"
    assert {TOPICS[topic] for topic in names_in(row.output)} == set(row.streams)
    folders = re.findall(r"`certificates/(.*?)/`", row.certificate)
    assert {name for name in SHOP.topologies for folder in folders if fnmatch(name, folder)} == set(row.streams)
    assert any(name in command for command in commands_in(row.seen) for name in row.streams)
