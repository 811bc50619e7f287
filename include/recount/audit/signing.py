"""Ed25519 keys of certificates: made once, kept in a folder of their own, and used to sign and to check."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
    load_pem_public_key,
)

from recount.core.certificate import Certificate, signed
from recount.core.errors import Terminal
from recount.core.signed_record import SignedRecord

R = TypeVar("R", bound=SignedRecord)

PRIVATE_KEY, PUBLIC_KEY = "signing.pem", "signing.pub"


@dataclass(frozen=True, kw_only=True)
class Signer:
    """A private key that signs certificates; ``key_id`` names its public key."""

    key_id: str
    _key: Ed25519PrivateKey

    def with_signature(self, certificate: Certificate) -> dict[str, Any]:
        """``certificate``, which names this key, with its signature."""
        return {**certificate, "signature": self.signature(signed(certificate))}

    def signature(self, told: bytes) -> str:
        """The signature over ``told``, in hexadecimal."""
        return self._key.sign(told).hex()


@dataclass(frozen=True, kw_only=True)
class PublicKeys:
    """The keys that are trusted, by id."""

    keys: Mapping[str, Ed25519PublicKey]

    def fault(self, certificate: Certificate) -> str | None:
        """What is wrong with the signature of a certificate or head; None when it holds."""
        try:
            told = signed(certificate)
        except KeyError:
            told = b""
        return self.fault_of(certificate.get("key_id"), certificate.get("signature"), told)

    def fault_of(self, key_id: object, signature: object, told: bytes) -> str | None:
        """What is wrong with the ``signature`` over ``told`` that the key ``key_id`` is said to have made."""
        key = self.keys.get(str(key_id))
        if key is None:
            return f"signed with key {key_id}, which is not among the trusted {sorted(self.keys)}"
        try:
            key.verify(bytes.fromhex(str(signature)), told)
        except (InvalidSignature, ValueError):
            return f"the signature is not one of key {key_id}"
        return None


def make_keys(folder: Path, *, reports: Path | None) -> str:
    """Make a key pair in ``folder``, which is created for its owner only; returns the key's id.

    Refuses to overwrite a key, and a folder inside ``reports`` or around it: who can publish reports, or reads them,
    must not be able to sign.
    """
    folder = folder.resolve()
    if reports is not None and (folder.is_relative_to(reports.resolve()) or reports.resolve().is_relative_to(folder)):
        raise Terminal(
            "the key would lie with the reports",
            given=str(folder),
            expected=f"a folder of its own, not in or around {reports}",
            remedy="set RECOUNT_KEYS to a folder that only the audit can read",
        )
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    key = Ed25519PrivateKey.generate()
    public = key.public_key()
    pems = {
        PRIVATE_KEY: (key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()), 0o600),
        PUBLIC_KEY: (public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo), 0o644),
    }
    existing = [str(folder / name) for name in pems if (folder / name).exists()]
    if existing:
        raise Terminal(
            "there is a key already",
            given=existing,
            expected="a folder without one",
            remedy=f"to change keys, keep {PUBLIC_KEY} under another name ending in .pub and move {PRIVATE_KEY} away",
        )
    for name, (pem, mode) in pems.items():
        # made with its mode, so that nobody can read it before
        with os.fdopen(os.open(folder / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(pem)
    return key_id_of(public)


def signed_record(record: R, signer: Signer | None) -> R:
    """``record`` with its SHA-256, and with a signature where there is a ``signer``."""
    hashed = record.hashed(signer.key_id if signer else None)
    return replace(hashed, signature=signer.signature(hashed.signed)) if signer else hashed


def signer_in(folder: str) -> Signer | None:
    """The signer whose key lies in ``folder``; None where no folder is named or no key is in it.

    Raises ``Terminal`` for a key that others can read, or that is none.
    """
    path = Path(folder) / PRIVATE_KEY
    if not folder or not path.exists():
        return None
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077:
        raise Terminal(
            "others can read the private key",
            given=f"{path}, mode {mode:o}",
            expected="600",
            remedy=f"chmod 600 {path}",
        )
    key = _loaded(path, lambda pem: load_pem_private_key(pem, password=None))
    if not isinstance(key, Ed25519PrivateKey):
        raise _no_key(path)
    return Signer(key_id=key_id_of(key.public_key()), _key=key)


def public_keys(files: Iterable[Path]) -> PublicKeys:
    """The public keys in ``files``; raises ``Terminal`` for a file that holds none."""
    found = {}
    for file in files:
        key = _loaded(file, load_pem_public_key)
        if not isinstance(key, Ed25519PublicKey):
            raise _no_key(file)
        found[key_id_of(key)] = key
    return PublicKeys(keys=found)


def trusted_in(folder: str) -> PublicKeys:
    """All public keys in ``folder``: the present one and former ones."""
    return public_keys(sorted(Path(folder).glob("*.pub")) if folder else [])


def key_id_of(key: Ed25519PublicKey) -> str:
    """The first 16 hexadecimal digits of the SHA-256 of the public key."""
    return hashlib.sha256(key.public_bytes(Encoding.Raw, PublicFormat.Raw)).hexdigest()[:16]


def _loaded(path: Path, load: Any) -> object:
    try:
        return load(path.read_bytes())
    except (OSError, ValueError, TypeError) as error:
        raise _no_key(path) from error


def _no_key(path: Path) -> Terminal:
    return Terminal(
        "no Ed25519 key", given=str(path), expected="a PEM file as `recount keys` writes it", remedy="see docs/audit.md"
    )
