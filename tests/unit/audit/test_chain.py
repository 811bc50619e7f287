"""Keys sign certificates; every fault of a chain of them is named, and nothing else is."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from tests.unit.audit.documents import findings

from recount.audit.certificate import signing
from recount.audit.certificate.signing import (
    PRIVATE_KEY,
    PUBLIC_KEY,
    BrokenChain,
    Signer,
    chain_in,
    keys,
    make_keys,
    public_keys,
    signer_in,
    trusted_in,
)
from recount.certificate.document import Certificate, Unverified, certified, content_hash, head_of, verify
from recount.runtime.errors import Terminal


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
        document: dict[str, Any] = json.loads((self.folder / f"night-{number}.json").read_text())
        return document

    def delete(self, *numbers: int) -> None:
        for number in numbers:
            (self.folder / f"night-{number}.json").unlink()

    def remake(self, number: int, audit: str, **change: Any) -> None:
        """By somebody who has the key: another certificate of that number."""
        self.put(self.made(audit, self.night(number - 1), self.signer, **change))

    def chain(self, signers: Sequence[Signer | None]) -> None:
        """A night for each of ``signers``."""
        previous = None
        for number, signer in enumerate(signers, start=1):
            previous = self.made(f"night-{number}", previous, signer)
            self.put(previous)
            self.head = dict(head_of(previous))

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
    nights.chain([signer] * 5)
    return nights


def hashed_again(nights: Nights) -> None:
    """Whoever has no key can make hashes hold; neither the signature nor the successor's link does then."""
    document = nights.night(3) | {"source": "archive"}
    nights.put(document | {"sha256": content_hash(document)})


def rewritten_from_the_third(nights: Nights) -> None:
    previous = nights.night(2)
    for number in (3, 4, 5):
        previous = nights.made(f"night-{number}", previous, nights.signer, source="archive")
        nights.put(previous)


def newest_by(nights: Nights, signer: Signer | None, **head: Any) -> None:
    """A sixth night, which is the published head."""
    newest = nights.made("night-6", nights.night(5), signer)
    nights.put(newest)
    nights.head = head_of(newest) | head


def signed_by_a_stranger(nights: Nights) -> None:
    make_keys(nights.root / "strangers", reports=None)
    newest_by(nights, signer_in(str(nights.root / "strangers")), signature=nights.night(5)["signature"])


ATTACKS: dict[str, tuple[Callable[[Nights], object], list[tuple[str, int | None]]]] = {
    "none": (lambda _: None, []),
    "a copy under another name": (lambda nights: nights.put(nights.night(3), "copy"), []),
    "no certificate": (lambda nights: (nights.folder / "note.json").write_text("[]"), [("altered", None)]),
    "altered": (lambda nights: nights.put(nights.night(3) | {"source": "archive"}), [("altered", 3)]),
    "altered and hashed again": (hashed_again, [("rewritten", 3), ("wrongly signed", 3)]),
    "newest deleted": (lambda nights: nights.delete(5), [("newest deleted", 5)]),
    "last two deleted": (lambda nights: nights.delete(4, 5), [("newest deleted", 5)]),
    "all deleted": (lambda nights: nights.delete(1, 2, 3, 4, 5), [("newest deleted", 5)]),
    "one missing": (lambda nights: nights.delete(3), [("missing", 3)]),
    "first missing": (lambda nights: nights.delete(1), [("missing", 1)]),
    "a second number 5 with the key": (lambda nights: nights.remake(5, "other-5"), [("fork", 5)]),
    "a second number 3 with the key": (lambda nights: nights.remake(3, "other-3"), [("fork", 3)]),
    "newest rewritten with the key": (
        lambda nights: (nights.delete(5), nights.remake(5, "other-5", source="kafka")),
        [("rewritten", 5)],
    ),
    "rewritten from the third with the key": (rewritten_from_the_third, [("rewritten", 5)]),
    "one rewritten with the key": (lambda nights: nights.remake(3, "night-3", source="archive"), [("rewritten", 3)]),
    "signature taken away": (lambda nights: nights.put(nights.night(3) | {"signature": None}), [("unsigned", 3)]),
    "newest unsigned": (lambda nights: newest_by(nights, None), [("unsigned", 6)]),
    "signed by a stranger": (signed_by_a_stranger, [("wrongly signed", 6), ("wrongly signed", 6)]),
    "signature of another": (
        lambda nights: nights.put(nights.night(3) | {"signature": nights.night(4)["signature"]}),
        [("wrongly signed", 3)],
    ),
    "of another stream": (
        lambda nights: nights.put(nights.made("night-9", None, nights.signer, stream="payments")),
        [("foreign", 1)],
    ),
    "no head": (lambda nights: setattr(nights, "head", None), [("unpublished", 5)]),
    "head put back": (lambda nights: setattr(nights, "head", head_of(nights.night(4))), [("unpublished", 5)]),
    "head forged": (
        lambda nights: nights.head.update(sequence=7),
        [("wrongly signed", 7), ("newest deleted", 7)],
    ),
}


@pytest.mark.parametrize(("attack", "named"), ATTACKS.values(), ids=ATTACKS)
def test_each_attack_on_a_chain_is_named_and_nothing_else(
    nights: Nights, attack: Callable[[Nights], object], named: list[tuple[str, int | None]]
) -> None:
    attack(nights)
    assert nights.found() == named


def test_unsigned_certificates_from_before_the_first_signed_one_are_vouched_for_by_it(nights: Nights) -> None:
    nights.chain([None, None, *[nights.signer] * 3])
    assert nights.found() == []
    nights.put(nights.made("night-4", nights.night(3), None))
    assert ("unsigned", 4) in nights.found()


def test_the_command_names_the_faults_and_says_what_was_not_asked(
    nights: Nights, capsys: pytest.CaptureFixture[str]
) -> None:
    signing.verify(chain=nights.folder, public_key=[nights.root / "keys" / PUBLIC_KEY])
    said = capsys.readouterr().out
    assert "5 certificates, the newest is number 5" in said
    assert "--head TOPIC" in said
    assert "the chain is whole" in said
    nights.delete(3)
    with pytest.raises(BrokenChain) as broken:
        signing.verify(chain=nights.folder)
    assert [(fault.kind, fault.number) for fault in broken.value.faults] == [("missing", 3)]
    assert "signatures were not checked" in capsys.readouterr().out


def test_the_private_key_is_its_owners_and_is_never_overwritten(tmp_path: Path) -> None:
    folder = tmp_path / "keys"
    key_id = make_keys(folder, reports=tmp_path / "reports")
    private = folder / PRIVATE_KEY
    assert stat.S_IMODE(private.stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    before = private.read_bytes()
    with pytest.raises(Terminal, match="already"):
        make_keys(folder, reports=None)
    assert private.read_bytes() == before
    signer = signer_in(str(folder))
    assert signer is not None
    assert signer.key_id == key_id
    assert list(trusted_in(str(folder)).keys) == [key_id]


@pytest.mark.parametrize("place", ["reports/keys", "reports", "."])
def test_no_key_is_made_with_the_reports(tmp_path: Path, place: str) -> None:
    with pytest.raises(Terminal, match="with the reports"):
        make_keys(tmp_path / place, reports=tmp_path / "reports")
    assert not list(tmp_path.rglob("*.pem"))


def test_a_key_that_others_can_read_and_what_is_no_key_sign_nothing(tmp_path: Path) -> None:
    assert signer_in("") is signer_in(str(tmp_path)) is None
    make_keys(tmp_path / "keys", reports=None)
    (tmp_path / "keys" / PRIVATE_KEY).chmod(0o640)
    with pytest.raises(Terminal, match="chmod 600"):
        signer_in(str(tmp_path / "keys"))
    (tmp_path / PUBLIC_KEY).write_text("no key")
    with pytest.raises(Terminal, match="no Ed25519 key"):
        public_keys([tmp_path / PUBLIC_KEY])


def test_a_signature_holds_for_its_certificate_under_its_key_only(tmp_path: Path) -> None:
    for name in ("ours", "other"):
        make_keys(tmp_path / name, reports=None)
    signer = signer_in(str(tmp_path / "ours"))
    assert signer is not None
    ours, other = (public_keys([tmp_path / name / PUBLIC_KEY]) for name in ("ours", "other"))
    signed = signer.with_signature(certified(findings("night-1"), None, key_id=signer.key_id))
    assert ours.fault(signed) is None
    assert "not among the trusted" in str(other.fault(signed))
    for change in ({"sha256": "0" * 64}, {"sequence": 2}, {"stream": "other"}, {"audit": "x"}, {"signature": "00"}):
        assert "is not one of key" in str(ours.fault(signed | change)), change


def test_an_unsigned_certificate_does_not_verify_under_a_key_but_may_come_before_a_signed_one(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", reports=None)
    signer = signer_in(str(tmp_path / "keys"))
    assert signer is not None
    fault = trusted_in(str(tmp_path / "keys")).fault
    first = certified(findings("night-1"), None)
    second = signer.with_signature(certified(findings("night-2"), first, key_id=signer.key_id))
    assert len(verify(second, [first], fault)) == 3
    with pytest.raises(Unverified, match="signature"):
        verify(first, [], fault)
    with pytest.raises(Unverified, match="signature"):
        verify(second | {"signature": None}, [first])


def test_the_command_prints_the_public_key_and_its_id_and_needs_a_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RECOUNT_KEYS", raising=False)
    monkeypatch.setenv("RECOUNT_REPORTS", str(tmp_path / "reports"))
    with pytest.raises(Terminal, match="no folder"):
        keys()
    monkeypatch.setenv("RECOUNT_KEYS", str(tmp_path / "reports" / "keys"))
    with pytest.raises(Terminal, match="with the reports"):
        keys()
    monkeypatch.setenv("RECOUNT_KEYS", str(tmp_path / "keys"))
    keys()
    said = capsys.readouterr().out
    assert (tmp_path / "keys" / PUBLIC_KEY).read_text() in said
    [key_id] = trusted_in(str(tmp_path / "keys")).keys
    assert f"key id {key_id}" in said
    assert "PRIVATE" not in said
