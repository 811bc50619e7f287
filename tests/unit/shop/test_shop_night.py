"""A night of the demo is one command: what it has judged is told apart, and whatever becomes of it, it ends."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from pathlib import Path

import psutil
import pytest
from examples.shop.shop_outcome import ShopNight

from recount.profile.home import Home
from recount.runtime.errors import Terminal

THROUGH = datetime(2026, 11, 21, 1, 2, 3, 456_789, UTC)
SHOP = ["ann", "bob"]
AUDITOR = '''#!{python}
"""Judges the streams of JUDGES[number of its calls], as recount audit would; at last it waits where it SLEEPS."""
import json, os, pathlib, subprocess, sys, time

home = pathlib.Path(os.environ["NIGHT_HOME"])
calls = home / "calls"
told = calls.read_text().splitlines() if calls.exists() else []
calls.write_text("\\n".join([*told, " ".join(sys.argv[1:])]))
for stream in json.loads(os.environ["JUDGES"])[len(told)]:
    folder = home / "reports" / "certificates" / stream
    folder.mkdir(parents=True, exist_ok=True)
    number = len(list(folder.glob("*.json"))) + 1
    said = {{"sha256": "", "outcome": "match", "sequence": number}}
    (folder / f"audit-{{number}}.json").write_text(json.dumps(said))
print("the brokers said no", flush=True)
if "SLEEPS" in os.environ:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    time.sleep(600)
sys.exit(int(os.environ.get("EXIT", "0")))
'''


def a_night(home: Home, judges: list[list[str]], *, streams: Collection[str] = (), **said: str) -> ShopNight:
    """One whose command judges the first of ``judges``, and those after it when it is called again."""
    auditor = home.path / "auditor"
    auditor.write_text(AUDITOR.format(python=sys.executable))
    auditor.chmod(0o700)
    environment: Mapping[str, str] = {**os.environ, "NIGHT_HOME": str(home.path), "JUDGES": json.dumps(judges), **said}
    return ShopNight.begin(home, "night-1", THROUGH, environment, streams=streams, recount=auditor)


def calls(home: Home) -> list[str]:
    return (home.path / "calls").read_text().splitlines()


def told_before(home: Home, stream: str) -> Path:
    path = home.reports / "certificates" / stream / "audit-1.json"
    path.parent.mkdir(parents=True)
    path.write_text(json.dumps({"sha256": "", "outcome": "violation", "sequence": 1}))
    return path


@pytest.mark.parametrize("exit_code", ["0", "3", "4"], ids=["match", "violation", "warnings"])
def test_a_night_has_the_certificates_that_it_has_issued_and_none_of_before(home: Home, exit_code: str) -> None:
    told_before(home, "ann")
    said: list[str] = []
    judged = a_night(home, [SHOP], EXIT=exit_code).end(SHOP, 20, said.append)
    assert {stream: one.certificate.name for stream, one in judged.items()} == {
        "ann": "audit-2.json",
        "bob": "audit-1.json",
    }
    assert judged["ann"].outcome == "match"
    assert said == []


def test_a_stream_that_could_not_be_judged_is_audited_once_more_up_to_the_same_time(home: Home) -> None:
    said: list[str] = []
    judged = a_night(home, [["ann"], ["bob"]], EXIT="75").end(SHOP, 20, said.append)
    assert judged.keys() == {"ann", "bob"}
    end = "--end 2026-11-21T01:02:03.456Z"
    assert calls(home) == [f"audit --all {end}", f"audit --stream bob {end}"]
    [line] = said
    assert "bob" in line and "ann" not in line


def test_a_night_that_has_judged_nothing_is_an_error_with_what_the_command_said(home: Home) -> None:
    told_before(home, "ann")
    with pytest.raises(Terminal) as refused:
        a_night(home, [[]], EXIT="1").end(SHOP, 20, lambda _: None)
    assert "exit code 1" in refused.value.given
    assert "the brokers said no" in refused.value.given
    assert str(home.logs / "night-1.log") in refused.value.remedy


def everybody(night: ShopNight) -> list[psutil.Process]:
    """The command and the process that it has started."""
    process, deadline = psutil.Process(night.process.pid), time.monotonic() + 20
    while not (children := process.children()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return [process, *children]


def ended(processes: list[psutil.Process]) -> bool:
    return all(not one.is_running() or one.status() == psutil.STATUS_ZOMBIE for one in processes)


def test_a_night_that_takes_too_long_is_ended_with_all_that_it_has_started(home: Home) -> None:
    night = a_night(home, [SHOP], SLEEPS="yes")
    running = everybody(night)
    with pytest.raises(Terminal) as late:
        night.end(SHOP, 0.2, lambda _: None)
    assert "took longer" in late.value.what
    assert ended(running)
