"""docs/troubleshooting.md: the error that it shows is one, its commands exist, the messages that it names are real."""

from __future__ import annotations

import re

import pytest
from tests.unit.docs.shown_commands import commands_in, page, require_typable

from recount.declare.registry import declared
from recount.runtime.errors import Terminal

PAGE = page("troubleshooting.md")
ERRORS = page("errors.md")
OF_THE_DOCUMENTS = ("State store not found", "Late events dropped by window", "RocksDB out of memory")


def test_the_error_on_the_page_is_one() -> None:
    with pytest.raises(Terminal) as raised:
        declared("topologies.fraud").stream("fraud")
    assert f"```\nrecount describe: {raised.value}\n```" in PAGE


def test_each_error_of_the_documents_has_its_section_with_what_to_do() -> None:
    sections = dict(re.findall(r"^### (.*?)\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
    assert tuple(sections) == OF_THE_DOCUMENTS
    assert all(re.search(r"^1\. .*^2\. ", text, re.MULTILINE | re.DOTALL) for text in sections.values())


@pytest.mark.parametrize("message", ["no memory is left for another batch", "no such stream"])
def test_a_message_that_the_page_names_is_in_the_list_of_errors(message: str) -> None:
    assert f"*{message}*" in PAGE
    assert f"| {message} |" in ERRORS


@pytest.mark.parametrize("command", commands_in(PAGE))
def test_each_command_can_be_typed(command: str) -> None:
    require_typable(command)
