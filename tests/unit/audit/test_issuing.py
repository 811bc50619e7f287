"""Two audits at once are never both number n, and an audit that dies while it issues blocks nobody (issue 12, 4)."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit.documents import findings

from recount.audit.certificate.certificate_files import load
from recount.audit.certificate.issuing import Opened, UntrustedHead, issue, locked, require_issuable, write_whole
from recount.audit.certificate.signing import chain_in, make_keys, signer_in, trusted_in
from recount.certificate.document import FORMAT, certified, content_hash, head_of
from recount.kafka.connection import Fenced
from recount.profile.home import Project
from recount.runtime.errors import Terminal


class Board:
    """A published head without a broker."""

    def __init__(self, head: Any = None) -> None:
        self.head = head
        self.before_publishing: list[Any] = []

    def opened(self) -> AbstractContextManager[Board]:
        return nullcontext(self)

    def read(self) -> Any:
        return self.head

    def publish(self, head: Any) -> None:
        if self.before_publishing:
            self.head = self.before_publishing.pop()
            raise Fenced("another one was opened")
        self.head = head


def issued(root: Path, audit: str, opened: Opened | None = None, **options: Any) -> dict[str, Any]:
    path = issue("revenue", audit, lambda: findings(audit), str(root), opened=opened, **options)
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def in_another_process(project: Project, code: str, root: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(project.root)}
    command = [sys.executable, "-c", f"from tests.unit.audit.test_issuing import *\nroot = Path({str(root)!r})\n{code}"]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)


def faults(root: Path, board: Board | None = None) -> list[tuple[str, int | None]]:
    """What is wrong with the chain, asked with the head of ``board``."""
    head = {} if board is None else {"head": board.head, "head_is_asked": True}
    found = chain_in(root / "certificates/revenue", "revenue", **head).faults()
    return [(fault.kind, fault.number) for fault in found]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "certificates/revenue"
    folder.mkdir(parents=True)
    return folder


def test_two_processes_that_issue_at_once_share_no_number(tmp_path: Path, project: Project) -> None:
    codes = [f"for n in range(5):\n    issued(root, f'{name}-{{n}}')" for name in ("one", "two")]
    started = [in_another_process(project, code, tmp_path) for code in codes]
    assert [process.wait(60) for process in started] == [0, 0]
    found = [json.loads(path.read_text()) for path in tmp_path.glob("certificates/revenue/*.json")]
    assert sorted(one["sequence"] for one in found) == list(range(1, 11))
    assert faults(tmp_path) == []


def test_what_is_certified_is_asked_when_no_certificate_can_come_between(tmp_path: Path, folder: Path) -> None:
    """Two audits that end together: the second knows what the first has found."""
    board = Board()
    board.before_publishing.append(head_of(issued(tmp_path / "elsewhere", "theirs")))
    seen: list[list[str]] = []

    def said() -> dict[str, Any]:
        seen.append(sorted(path.stem for path in folder.glob("*.json")))
        if len(seen) == 1:
            shutil.copy(tmp_path / "elsewhere/certificates/revenue/theirs.json", folder)
        return findings("ours")

    issue("revenue", "ours", said, str(tmp_path), opened=board.opened)
    assert seen == [[], ["theirs"]]


def test_an_audit_killed_while_it_issues_blocks_nobody(tmp_path: Path, project: Project) -> None:
    issued(tmp_path, "night-1")
    hanging = (
        "board = Board()\n"
        "board.publish = lambda head: (print('reserved', head['sequence'], flush=True), time.sleep(600))\n"
        "issued(root, 'night-2', board.opened)"
    )
    with in_another_process(project, hanging, tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "reserved 2\n"
        process.send_signal(signal.SIGKILL)
    started = time.monotonic()
    assert issued(tmp_path, "night-3")["sequence"] == 2
    assert time.monotonic() - started < 10
    assert not list(tmp_path.glob("certificates/revenue/.*.draft"))


def test_a_certificate_whose_head_was_published_before_its_audit_died_is_completed(tmp_path: Path) -> None:
    board = Board()
    path = issue("revenue", "night-1", lambda: findings("night-1"), str(tmp_path), opened=board.opened)
    path.rename(path.with_name(f".{path.name}.draft"))
    path.with_suffix(".html").unlink()
    assert issued(tmp_path, "night-2", board.opened)["sequence"] == 2
    assert path.exists() and path.with_suffix(".html").exists()
    assert faults(tmp_path, board) == []


def test_whoever_is_fenced_takes_the_number_after_and_an_audit_that_has_a_certificate_gets_no_other(
    tmp_path: Path, folder: Path
) -> None:
    elsewhere = issued(tmp_path / "elsewhere", "theirs")
    board = Board()
    board.before_publishing.append(head_of(elsewhere))
    mine = issued(tmp_path, "mine", board.opened)
    assert (mine["sequence"], mine["previous_sha256"]) == (2, elsewhere["sha256"])
    assert not list(folder.glob(".*.draft"))
    with pytest.raises(Terminal, match="has a certificate"):
        issued(tmp_path, "mine")


@pytest.mark.parametrize(("head_too", "sequence", "fault"), [(False, 3, ("missing", 2)), (True, 2, ("unpublished", 2))])
def test_a_newest_that_was_deleted_leaves_a_hole_in_the_chain_or_with_the_head_a_trace_in_the_next(
    tmp_path: Path, folder: Path, head_too: bool, sequence: int, fault: tuple[str, int]
) -> None:
    board = Board()
    for audit in ("night-1", "night-2"):
        issued(tmp_path, audit, board.opened)
    (folder / "night-2.json").unlink()
    board.head = None if head_too else board.head
    assert issued(tmp_path, "night-3", board.opened)["sequence"] == sequence
    assert faults(tmp_path, board) == [fault]


def test_a_head_signed_by_a_stranger_stops_the_issue(tmp_path: Path) -> None:
    for name in ("ours", "strangers"):
        make_keys(tmp_path / name, reports=None)
    ours = {"signer": signer_in(str(tmp_path / "ours")), "trusted": trusted_in(str(tmp_path / "ours"))}
    board = Board()
    issued(tmp_path, "night-1", board.opened, **ours)
    stranger = issued(tmp_path / "elsewhere", "night-9", signer=signer_in(str(tmp_path / "strangers")))
    board.head = head_of(stranger | {"sequence": 99})
    with pytest.raises(UntrustedHead):
        issued(tmp_path, "night-2", board.opened, **ours)


@pytest.mark.parametrize("told", ["Infinity", "NaN", "many"])
def test_a_certificate_of_which_no_page_can_be_made_keeps_no_later_one_from_being_issued(
    tmp_path: Path, told: str
) -> None:
    """Two records of 1.7e308 in a sum of DOUBLE did it, for the page's bars were parts of an infinite one."""
    board = Board()
    series = [{"window_start": 0, "expected": told, "published": told, "complete": told}]
    document = findings("night-1") | {"series": series}
    path = issue("revenue", "night-1", lambda: document, str(tmp_path), opened=board.opened)
    assert "night-1" in path.with_suffix(".html").read_text()
    assert issued(tmp_path, "night-2", board.opened)["sequence"] == 2
    assert faults(tmp_path, board) == []


@pytest.mark.parametrize("draft", ['{"sha256": "%s"}', '{"sha256": "%s", "format": "recount certificate 2"}'])
def test_a_draft_that_somebody_made_up_keeps_no_certificate_from_being_issued(
    tmp_path: Path, folder: Path, draft: str
) -> None:
    """It named the published head, was taken for that certificate, and no page could be made of it."""
    board = Board()
    head = issued(tmp_path, "night-1", board.opened)
    (folder / ".night-0.json.draft").write_text(draft % head["sha256"])
    for name in ("pipe.json", ".pipe.json.draft"):
        os.mkfifo(folder / name)
    for name in ("folder.json", ".folder.json.draft"):
        (folder / name).mkdir()
    assert issued(tmp_path, "night-2", board.opened)["sequence"] == 2
    assert [path.name for path in sorted(folder.glob("night*.json"))] == ["night-1.json", "night-2.json"]


@pytest.mark.parametrize(
    "said", ['"sha256": []', '"sha256": {}', '"sha256": "0"', '"sha256": "0", "previous_sha256": []']
)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_old_rubbish_that_looks_like_a_certificate_does_not_either(
    tmp_path: Path, folder: Path, said: str, number: int
) -> None:
    board = Board()
    for audit in ("night-1", "night-2", "night-3"):
        issued(tmp_path, audit, board.opened)
    board.head = head_of(load(folder / "night-1.json"))
    (folder / "old.json").write_text(f'{{"sequence": {number}, {said}}}')
    assert issued(tmp_path, "night-4", board.opened)["sequence"] == 4


def test_rubbish_in_the_folder_does_not_keep_a_certificate_from_being_issued(tmp_path: Path, folder: Path) -> None:
    issued(tmp_path, "night-1")
    rubbish = {"rubbish": "[]", "forged": '{"sequence": 999, "sha256": "0"}', "deep": "[" * 100_000}
    for name, what in {
        "infinite": '"sequence": Infinity',
        "text": '"sequence": "998"',
        "none": '"results": NaN',
    }.items():
        said = json.dumps({**findings(name), "format": FORMAT, "sequence": 997, "sha256": "0"})
        rubbish[name] = f"{said[:-1]}, {what}}}"
    hashed = certified(findings("text"), {"sequence": 996, "sha256": "0"}) | {"sequence": "999"}
    rubbish["hashed"] = json.dumps({**hashed, "sha256": content_hash(hashed)})
    for name, text in rubbish.items():
        (folder / f"{name}.json").write_text(text)
    assert issued(tmp_path, "night-2")["sequence"] == 2
    assert "altered" in {kind for kind, _ in faults(tmp_path)}


def test_a_lock_that_leads_to_a_key_leaves_it_as_it_is_and_what_is_in_its_way_is_told_before_the_audit(
    tmp_path: Path, folder: Path
) -> None:
    """The key was cut off to nothing, and no certificate could be signed any more."""
    key, lock = tmp_path / "signing.pem", folder / ".lock"
    key.write_text("secret")
    lock.symlink_to(key)
    with pytest.raises(Terminal):
        require_issuable(str(tmp_path), "revenue")
    with pytest.raises(Terminal):
        issued(tmp_path, "night-1")
    lock.unlink()
    os.link(key, lock)
    with locked(folder):
        pass
    assert key.read_text() == "secret"
    lock.unlink()
    lock.mkdir()
    with pytest.raises(Terminal) as refused:
        require_issuable(str(tmp_path), "revenue")
    assert ".lock" in str(refused.value.given)
    (tmp_path / "certificates/clicks").write_text("no folder")
    with pytest.raises(Terminal):
        require_issuable(str(tmp_path), "clicks")
    require_issuable(str(tmp_path), "orders")


def test_what_lies_where_a_file_is_prepared_is_not_written_to(tmp_path: Path) -> None:
    key, part = tmp_path / "signing.pem", tmp_path / "page.html.part"
    key.write_text("secret")
    for prepare in (lambda: part.symlink_to(key), lambda: os.link(key, part), lambda: os.mkfifo(part)):
        prepare()
        write_whole(tmp_path / "page.html", "told")
        assert ((tmp_path / "page.html").read_text(), key.read_text(), part.exists()) == ("told", "secret", False)
        assert not (tmp_path / "page.html").is_symlink()
    part.mkdir()
    with pytest.raises(Terminal):
        write_whole(tmp_path / "page.html", "told")
