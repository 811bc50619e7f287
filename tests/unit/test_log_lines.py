"""What a process writes into its log, as text and as JSON, set up as the commands set it up."""

from __future__ import annotations

import json
import logging
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from recount.engine.upkeep.trimming import in_background
from recount.runtime.log_lines import about, formatter, told_of, write_log
from recount.runtime.settings import InvalidSettings, LogFormat, Settings

SETUP = """
import logging, threading, warnings
from recount.runtime.log_lines import about, tell_error, told_of, write_log
write_log({log_format!r}, has_streams={has_streams!r})
log = logging.getLogger("recount.engine.commit.batch")
"""


def said_by(program: str, log_format: LogFormat, *, has_streams: bool = False) -> list[str]:
    """The lines that a process writes which logs in ``log_format`` and runs ``program``."""
    source = SETUP.format(log_format=log_format, has_streams=has_streams) + program
    return subprocess.run([sys.executable, "-c", source], capture_output=True, text=True).stderr.splitlines()


def objects(program: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said_by(program, "json")]


Logged = tuple[logging.Logger, list[str]]


@pytest.fixture
def logged() -> Iterator[Logged]:
    """A logger whose lines of JSON are in the list."""
    log, lines = logging.getLogger("of a driver"), list[str]()
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(formatter("json").format(record))  # type: ignore[method-assign]
    log.handlers = [handler]
    log.setLevel(logging.INFO)
    yield log, lines
    log.handlers = []


def test_a_line_of_json_says_what_it_is_about_with_the_fields_of_the_line_on_the_page(logged: Logged) -> None:
    log, lines = logged
    before = datetime.now(UTC)
    with about(stream="revenue", lease_epoch=3), about(batch=7, audit=None):
        log.info("batch %d: %d records", 7, 1_000)
    [said] = map(json.loads, lines)
    [shown] = re.findall(r"```json\n(.*?)\n```", (Path(__file__).parents[2] / "docs" / "logs.md").read_text())
    assert json.loads(shown).keys() == said.keys()
    assert abs((datetime.fromisoformat(said.pop("ts")) - before).total_seconds()) < 60
    fields = {"level": "INFO", "logger": "of a driver", "stream": "revenue", "lease_epoch": 3, "batch": 7}
    assert said == {**fields, "msg": "batch 7: 1000 records"}


def test_fields_hold_in_the_threads_of_a_stream_and_nowhere_else(logged: Logged) -> None:
    log, lines = logged
    with about(stream="orders"):
        thread = threading.Thread(target=told_of(log.info, stream="views", batch=1), args=("a batch",))
        thread.start()
        thread.join()
        in_background("recovery", lambda: log.info("recovered")).result()
    log.info("no stream is to run")
    found = [(said["msg"], said.get("stream"), said.get("batch")) for said in map(json.loads, lines)]
    assert found == [("a batch", "views", 1), ("recovered", "orders", None), ("no stream is to run", None, None)]


def test_a_traceback_and_a_text_of_several_lines_are_in_one_line(logged: Logged) -> None:
    log, lines = logged
    try:
        raise ValueError('one\ntwo \u2028 "three"')
    except ValueError:
        log.exception("failed:\n%s", {"a": object})
    [line] = lines
    assert len(line.splitlines()) == 1
    said = json.loads(line)
    assert said["msg"].startswith("failed:\n{")
    assert said["exception"].startswith("Traceback")
    assert said["exception"].endswith('ValueError: one\ntwo \u2028 "three"')


def test_text_names_the_stream_where_a_process_has_several() -> None:
    [line] = said_by('log.info("batch %d", 7)', "text")
    assert line.partition(" INFO ")[2] == "recount.engine.commit.batch: batch 7"
    program = 'log.info("ready")\nwith about(stream="orders"): log.info("a batch")'
    lines = said_by(program, "text", has_streams=True)
    assert [line.partition(" INFO ")[2] for line in lines] == [
        "[-] recount.engine.commit.batch: ready",
        "[orders] recount.engine.commit.batch: a batch",
    ]


def test_warnings_and_errors_that_nobody_caught_are_lines_of_json() -> None:
    program = """
warnings.warn("old")
with about(stream="orders"):
    thread = threading.Thread(target=told_of(lambda: 1 / 0, stream="views"))
    thread.start()
    thread.join()
    raise LookupError("no\\nanswer")
"""
    warned, of_thread, of_main = objects(program)
    assert (warned["level"], "UserWarning: old" in warned["msg"]) == ("WARNING", True)
    assert (of_thread["level"], of_thread["msg"]) == ("CRITICAL", "nobody caught: division by zero")
    assert of_main["exception"].endswith("LookupError: no\nanswer")


def test_a_command_that_failed_says_so_in_the_format_of_its_log() -> None:
    [said] = objects('tell_error("recount audit: no")')
    assert (said["level"], said["msg"]) == ("ERROR", "recount audit: no")
    assert said_by('tell_error("recount audit: no")', "text") == ["recount audit: no"]


def test_an_unknown_format_is_refused_and_a_process_that_has_logs_of_its_own_keeps_them() -> None:
    with pytest.raises(InvalidSettings, match="RECOUNT_LOG_FORMAT is 'xml', not text or json"):
        Settings.from_environment({"RECOUNT_LOG_FORMAT": "xml"})
    handlers = list(logging.getLogger().handlers)
    assert handlers, "pytest's"
    write_log("text")
    assert logging.getLogger().handlers == handlers
