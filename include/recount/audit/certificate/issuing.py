"""Issue of a certificate as the only number n of its stream, also when others issue one or a process dies.

On one machine a lock of the file system lets one at a time in; it ends with the process that holds it. Between machines
the published head decides: only the process that opened it last can publish the next
(``recount.kafka.compacted``). A certificate is a draft until its head is published. A draft that was left
behind is completed by the next issue when its head is the published one, and thrown away when it is not.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

from recount.audit.certificate.certificate_files import load, page, sound
from recount.audit.certificate.signing import PublicKeys, Signer
from recount.certificate.chain import successor_of
from recount.certificate.document import Certificate, Unverified, certified, head_of, verify_alone
from recount.kafka.compacted import HeadPublisher
from recount.kafka.connection import Fenced
from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import bytes_of_file

_LOG = logging.getLogger(__name__)
_TOLD_OF_A_HEAD = ("sequence", "audit", "sha256")
_ATTEMPTS = 8
_LOCK_S = 120.0
_FOR_ALL = 0o666
"""Less what the umask of the process takes away, as for every file that is made."""


class UntrustedHead(Terminal):
    """The published head is signed with no key of this installation."""


Opened = Callable[[], AbstractContextManager[HeadPublisher]]


def issue(
    stream: str,
    audit: str,
    said: Callable[[], Mapping[str, Any]],
    reports: str,
    *,
    signer: Signer | None = None,
    trusted: PublicKeys | None = None,
    opened: Opened | None = None,
) -> Path:
    """Certify what ``audit`` has ``said`` as the next certificate; returns the JSON file, the page is beside it.

    ``said`` is asked when all certificates before are there and no other can come between, again at every attempt.
    Signed where there is a ``signer``, published where ``opened`` gives a publisher. ``trusted`` keys may have signed
    the head that stands. Raises ``Terminal`` when the audit has a certificate, ``UntrustedHead``, ``Transient``.
    """
    folder = _folder(reports, stream)
    target = folder / f"{audit}.json"
    with locked(folder):
        for attempt in range(_ATTEMPTS):
            # two machines that fence each other would go on doing so if they tried again at once
            time.sleep(random.uniform(0, 0.5 * attempt))  # noqa: S311 - a pause, not a secret
            try:
                with opened() if opened else nullcontext() as publisher:
                    return _issued(stream, said, target, signer, trusted, publisher)
            except Fenced:
                _LOG.info("another audit of %s issues a certificate at the same time: once more", stream)
    raise Transient(
        "other audits of this stream issue certificates all the time",
        given=stream,
        expected=f"to be the only one once in {_ATTEMPTS} times",
        remedy="audit again",
    )


def require_issuable(reports: str, stream: str) -> None:
    """Raise ``Terminal`` where no certificate of ``stream`` could be issued, before an audit is computed for it."""
    os.close(_opened_lock(_folder(reports, stream)))


def certificates_of(reports: str, stream: str) -> Path:
    """The folder of the certificates of ``stream``."""
    return Path(reports) / "certificates" / stream


def _folder(reports: str, stream: str) -> Path:
    folder = certificates_of(reports, stream)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_ours(folder, error, "a folder in which this user can make files") from error
    return folder


def _issued(
    stream: str,
    said: Callable[[], Mapping[str, Any]],
    target: Path,
    signer: Signer | None,
    trusted: PublicKeys | None,
    publisher: HeadPublisher | None,
) -> Path:
    head = publisher.read() if publisher else None
    _settle_drafts(target.parent, head)
    if target.exists():
        raise Terminal(
            "this audit has a certificate",
            given=str(target),
            expected="an audit without one: a certificate is never rewritten",
            remedy="leave --audit out",
        )
    known = _at_hand(target.parent, stream)
    if signer and head and not any(one["sha256"] == head["sha256"] for one in known):
        _require_trusted(head, trusted)
    found = {"published_head": head and {name: head[name] for name in _TOLD_OF_A_HEAD}} if publisher else {}
    key_id = signer.key_id if signer else None
    certificate = certified({**said(), **found}, successor_of(known, head), key_id=key_id)
    if signer:
        certificate = signer.with_signature(certificate)
    draft = _draft(target)
    write_whole(draft, json.dumps(certificate, indent=2, sort_keys=True, ensure_ascii=False) + "\n")
    if publisher:
        try:
            publisher.publish(head_of(certificate))
        except Fenced:
            draft.unlink()
            raise
    _complete(draft, target)
    return target


def _at_hand(folder: Path, stream: str) -> list[Certificate]:
    """The certificates in ``folder`` from which the chain can go on, newest first; what does not hold is left out."""
    found = []
    for path in folder.glob("*.json"):
        try:
            document = load(path)
            number = document["sequence"]
        except (Terminal, KeyError):
            number = None
        if type(number) is int and _names_hashes(document):
            found.append((number, path, document))
        else:
            _LOG.warning("%s is no certificate", path)
    found.sort(key=lambda one: one[0], reverse=True)
    while found:
        _, path, newest = found[0]
        try:
            verify_alone(newest)
            if newest["stream"] == stream:
                break
        except Unverified as error:
            _LOG.warning("%s does not hold: %s", path, error)
        found.pop(0)
    return [document for _, _, document in found]


def _names_hashes(document: Certificate) -> bool:
    """Whether the chain can be followed through it: ``successor_of`` looks at no more of what does not hold."""
    before = document.get("previous_sha256")
    return isinstance(document["sha256"], str) and (before is None or isinstance(before, str))


def _require_trusted(head: Certificate, trusted: PublicKeys | None) -> None:
    fault = trusted.fault(head) if trusted else "no key is trusted"
    if fault:
        raise UntrustedHead(
            f"the published head of {head['stream']} is not one of ours",
            given=f"number {head['sequence']}, audit {head['audit']}: {fault}",
            expected="a head signed with a key in RECOUNT_KEYS, or that of a certificate at hand",
            remedy="put a former public key (*.pub) there, or see who can write to the topic and restore its record",
        )


def _settle_drafts(folder: Path, head: Certificate | None) -> None:
    """Complete the draft whose head was published, throw others away, and write the pages that are missing."""
    for draft in folder.glob(".*.json.draft"):
        if draft.is_dir() and not draft.is_symlink():
            _LOG.warning("%s is no draft", draft)
        elif head is not None and _is_of(draft, head):
            _complete(draft, folder / draft.name.removeprefix(".").removesuffix(".draft"))
        else:
            draft.unlink(missing_ok=True)


def _is_of(draft: Path, head: Certificate) -> bool:
    """Whether ``draft`` is the certificate that ``head`` names; anybody who can write to the folder can write one."""
    try:
        return bool(sound(draft)["sha256"] == head["sha256"])
    except Terminal:
        return False


def _complete(draft: Path, target: Path) -> None:
    """Give ``draft`` its name, unless it has it, and write the page."""
    try:
        os.link(draft, target)
    except FileExistsError:
        if bytes_of_file(target) != bytes_of_file(draft):
            raise
    write_whole(target.with_suffix(".html"), _page_of(target))
    draft.unlink()


def _page_of(certificate: Path) -> str:
    """Whatever keeps the page of a ``certificate`` from being made, no later one has to wait for it."""
    try:
        return page(json.loads(bytes_of_file(certificate)))
    except Exception:
        _LOG.exception("no page can be made of %s", certificate)
        return (
            f"<!doctype html><title>{certificate.stem}</title><p>No page can be made of this certificate: see its JSON."
        )


def _draft(target: Path) -> Path:
    return target.with_name(f".{target.name}.draft")


def write_whole(path: Path, text: str) -> None:
    """Whole or not at all, even when the machine fails.

    It writes to no file that is there: a link beside it could lead to any other, and a pipe would keep it for ever.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        part.unlink(missing_ok=True)
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, _FOR_ALL)
    except OSError as error:
        raise _not_ours(part, error, "no file, or one that can be removed") from error
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    part.replace(path)


def _opened_lock(folder: Path) -> int:
    """The lock of ``folder``. Nothing is cut off and no link is followed: it could lead to the key that signs."""
    path = folder / ".lock"
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, _FOR_ALL)
    except OSError as error:
        raise _not_ours(path, error, "no file, or an empty one of this user: Recount makes it") from error


def _not_ours(path: Path, error: OSError, expected: str) -> Terminal:
    return Terminal(
        "a file of the reports cannot be written",
        given=f"{path}: {error.strerror}",
        expected=expected,
        remedy="see who can write there, and take away what is in the way; then do it again",
    )


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the ``folder`` of a stream's certificates: none is issued meanwhile. A process that dies lets go of it."""
    deadline = time.monotonic() + _LOCK_S
    with os.fdopen(_opened_lock(folder), "r+b", buffering=0) as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    raise Transient(
                        "another audit of this stream issues a certificate",
                        given=str(folder),
                        expected=f"to end within {_LOCK_S:.0f} s",
                        remedy="audit again",
                    ) from None
                time.sleep(0.05)
        yield
