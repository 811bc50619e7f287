"""Keys are made once, for their owner only and away from the reports, and sign certificates (issue 12, 4)."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from tests.unit.audit.documents import findings

from recount.audit.certificate.signing import (
    PRIVATE_KEY,
    PUBLIC_KEY,
    keys,
    make_keys,
    public_keys,
    signer_in,
    trusted_in,
)
from recount.certificate.document import Unverified, certified, verify
from recount.runtime.errors import Terminal


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


def test_a_key_that_others_can_read_signs_nothing(tmp_path: Path) -> None:
    make_keys(tmp_path / "keys", reports=None)
    (tmp_path / "keys" / PRIVATE_KEY).chmod(0o640)
    with pytest.raises(Terminal, match="chmod 600"):
        signer_in(str(tmp_path / "keys"))


def test_without_a_key_there_is_no_signer(tmp_path: Path) -> None:
    assert signer_in("") is None
    assert signer_in(str(tmp_path)) is None


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


def test_what_is_no_key_is_refused(tmp_path: Path) -> None:
    (tmp_path / PUBLIC_KEY).write_text("no key")
    with pytest.raises(Terminal, match="no Ed25519 key"):
        public_keys([tmp_path / PUBLIC_KEY])


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
