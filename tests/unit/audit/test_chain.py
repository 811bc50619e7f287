"""Every fault of a chain of certificates is named, and nothing else is (issue 12, 4)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit.documents import findings

from recount.audit.certificate.signing import (
    PUBLIC_KEY,
    BrokenChain,
    Signer,
    chain_in,
    make_keys,
    public_keys,
    signer_in,
    verify,
)
from recount.certificate.document import Certificate, certified, content_hash, head_of


@dataclass(kw_only=True)
class Nights:
    """Five signed nights of the stream ``revenue``, and their published head."""

    root: Path
    signer: Signer
    head: Certificate

    @property
    def folder(self) -> Path:
        return self.root / "revenue"

    def night(self, number: int) -> dict[str, Any]:
        document: dict[str, Any] = json.loads(self.file(number).read_text())
        return document

    def file(self, number: int) -> Path:
        return self.folder / f"night-{number}.json"

    def put(self, certificate: Certificate, name: str = "") -> None:
        (self.folder / f"{name or certificate['audit']}.json").write_text(json.dumps(certificate))

    def made(self, audit: str, previous: Certificate | None, signer: Signer | None, **change: Any) -> dict[str, Any]:
        made = certified(findings(audit) | change, previous, key_id=signer.key_id if signer else None)
        return signer.with_signature(made) if signer else made

    def found(self) -> list[tuple[str, int | None]]:
        keys = public_keys([self.root / "keys" / PUBLIC_KEY])
        chain = chain_in(self.folder, "revenue", keys.fault, self.head, head_is_asked=True)
        return [(fault.kind, fault.number) for fault in chain.faults()]


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    make_keys(tmp_path / "keys", reports=None)
    signer = signer_in(str(tmp_path / "keys"))
    assert signer is not None
    nights = Nights(root=tmp_path, signer=signer, head={})
    nights.folder.mkdir()
    previous = None
    for number in range(1, 6):
        previous = nights.made(f"night-{number}", previous, signer)
        nights.put(previous)
        nights.head = head_of(previous)
    return nights


def test_a_whole_chain_has_no_fault(nights: Nights) -> None:
    assert nights.found() == []


def test_a_copy_of_a_certificate_under_another_name_is_no_fault(nights: Nights) -> None:
    nights.put(nights.night(3), "copy")
    assert nights.found() == []


def altered(nights: Nights) -> None:
    nights.put(nights.night(3) | {"source": "archive"})


def altered_and_hashed_again(nights: Nights) -> None:
    """Whoever has no key can make hashes hold; neither the signature nor the successor's link does then."""
    document = nights.night(3) | {"source": "archive"}
    nights.put(document | {"sha256": content_hash(document)})


def newest_deleted(nights: Nights) -> None:
    nights.file(5).unlink()


def last_two_deleted(nights: Nights) -> None:
    newest_deleted(nights)
    nights.file(4).unlink()


def all_deleted(nights: Nights) -> None:
    for number in range(1, 6):
        nights.file(number).unlink()


def one_in_the_middle_missing(nights: Nights) -> None:
    nights.file(3).unlink()


def first_missing(nights: Nights) -> None:
    nights.file(1).unlink()


def fork(nights: Nights) -> None:
    """By somebody who has the key: a second number 5."""
    nights.put(nights.made("other-5", nights.night(4), nights.signer))


def fork_in_the_middle(nights: Nights) -> None:
    nights.put(nights.made("other-3", nights.night(2), nights.signer))


def newest_rewritten_with_the_key(nights: Nights) -> None:
    nights.file(5).unlink()
    nights.put(nights.made("other-5", nights.night(4), nights.signer))


def rewritten_from_the_third_with_the_key(nights: Nights) -> None:
    previous = nights.night(2)
    for number in (3, 4, 5):
        previous = nights.made(f"night-{number}", previous, nights.signer, source="archive")
        nights.put(previous)


def one_rewritten_with_the_key(nights: Nights) -> None:
    nights.put(nights.made("night-3", nights.night(2), nights.signer, source="archive"))


def signature_taken_away(nights: Nights) -> None:
    nights.put(nights.night(3) | {"signature": None})


def newest_unsigned(nights: Nights) -> None:
    newest = nights.made("night-6", nights.night(5), None)
    nights.put(newest)
    nights.head = head_of(newest)


def signed_by_a_stranger(nights: Nights) -> None:
    make_keys(nights.root / "strangers", reports=None)
    newest = nights.made("night-6", nights.night(5), signer_in(str(nights.root / "strangers")))
    nights.put(newest)
    nights.head = head_of(newest) | {"signature": nights.night(5)["signature"]}


def signature_of_another(nights: Nights) -> None:
    nights.put(nights.night(3) | {"signature": nights.night(4)["signature"]})


def of_another_stream(nights: Nights) -> None:
    nights.put(nights.made("night-9", None, nights.signer, stream="payments"))


def no_head(nights: Nights) -> None:
    nights.head = None  # type: ignore[assignment]


def head_put_back(nights: Nights) -> None:
    nights.head = head_of(nights.night(4))


def head_forged(nights: Nights) -> None:
    nights.head = {**nights.head, "sequence": 7}


@pytest.mark.parametrize(
    ("attack", "named"),
    [
        (altered, [("altered", 3)]),
        (altered_and_hashed_again, [("rewritten", 3), ("wrongly signed", 3)]),
        (newest_deleted, [("newest deleted", 5)]),
        (last_two_deleted, [("newest deleted", 5)]),
        (all_deleted, [("newest deleted", 5)]),
        (one_in_the_middle_missing, [("missing", 3)]),
        (first_missing, [("missing", 1)]),
        (fork, [("fork", 5)]),
        (fork_in_the_middle, [("fork", 3)]),
        (newest_rewritten_with_the_key, [("rewritten", 5)]),
        (rewritten_from_the_third_with_the_key, [("rewritten", 5)]),
        (one_rewritten_with_the_key, [("rewritten", 3)]),
        (signature_taken_away, [("unsigned", 3)]),
        (newest_unsigned, [("unsigned", 6)]),
        (signed_by_a_stranger, [("wrongly signed", 6), ("wrongly signed", 6)]),
        (signature_of_another, [("wrongly signed", 3)]),
        (of_another_stream, [("foreign", 1)]),
        (no_head, [("unpublished", 5)]),
        (head_put_back, [("unpublished", 5)]),
        (head_forged, [("wrongly signed", 7), ("newest deleted", 7)]),
    ],
    ids=lambda value: value.__name__ if callable(value) else "",
)
def test_each_attack_on_a_chain_is_named_and_nothing_else(
    nights: Nights, attack: Callable[[Nights], None], named: list[tuple[str, int]]
) -> None:
    attack(nights)
    assert nights.found() == named


def test_a_file_that_is_no_certificate_is_named(nights: Nights) -> None:
    (nights.folder / "note.json").write_text("[]")
    assert nights.found() == [("altered", None)]


def test_unsigned_certificates_from_before_the_first_signed_one_are_vouched_for_by_it(nights: Nights) -> None:
    previous = None
    for number in range(1, 6):
        previous = nights.made(f"night-{number}", previous, nights.signer if number > 2 else None)
        nights.put(previous)
        nights.head = head_of(previous)
    assert nights.found() == []
    nights.put(nights.made("night-4", nights.night(3), None))
    assert ("unsigned", 4) in nights.found()


def test_the_command_names_the_faults_and_says_what_was_not_asked(
    nights: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    verify(chain=nights.folder, public_key=[nights.root / "keys" / PUBLIC_KEY])
    said = capsys.readouterr().out
    assert "5 certificates, the newest is number 5" in said
    assert "--head TOPIC" in said
    assert "the chain is whole" in said
    one_in_the_middle_missing(nights)
    with pytest.raises(BrokenChain) as broken:
        verify(chain=nights.folder)
    assert [(fault.kind, fault.number) for fault in broken.value.faults] == [("missing", 3)]
    assert "signatures were not checked" in capsys.readouterr().out
