"""Ed25519 keys of certificates, and the commands ``recount verify`` and ``recount keys``.

Keys are made once, kept in a folder of their own, and used to sign and to check.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, TypeVar

import typer
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

from recount.audit.certificate.certificate_files import load, verify_file
from recount.certificate.chain import Chain, Fault, told_of
from recount.certificate.document import Certificate, SignatureFault, signed
from recount.kafka.compacted import UnreadableHead, published_head
from recount.kafka.connection import Connection
from recount.kafka.security import VARIABLE, security_of
from recount.runtime.errors import Terminal
from recount.runtime.settings import PREFIX, ROLE, Settings
from recount.tables.signed_orders import SignedRecord

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
        """Return what is wrong with the signature of a certificate or head; None when it holds."""
        try:
            told = signed(certificate)
        except KeyError:
            told = b""
        return self.fault_of(certificate.get("key_id"), certificate.get("signature"), told)

    def fault_of(self, key_id: object, signature: object, told: bytes) -> str | None:
        """Return what is wrong with the ``signature`` over ``told`` that the key ``key_id`` is said to have made."""
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
    """The signer whose key is in ``folder``; None where no folder is named or no key is in it.

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


class BrokenChain(Terminal):
    """A chain of certificates with ``faults``."""

    def __init__(self, stream: str, faults: list[Fault]) -> None:
        self.faults = faults
        super().__init__(
            f"the certificates of {stream} are not a whole chain",
            given="; ".join(map(str, faults)),
            expected="no fault",
            remedy="compare with copies kept elsewhere; do not trust what is named here",
        )


def verify(
    certificate: Annotated[Path | None, typer.Argument(help="The JSON file of a certificate.")] = None,
    chain: Annotated[Path | None, typer.Option(help="A folder with all certificates of a stream.")] = None,
    head: Annotated[str | None, typer.Option(help="The topic on which heads are published.")] = None,
    public_key: Annotated[list[Path] | None, typer.Option(help="A key that is trusted; may be repeated.")] = None,
    stream: Annotated[str | None, typer.Option(help="The stream of --chain. Default: the folder's name.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Repeat the audit from the raw log, and compare.")] = False,
    source: Annotated[str | None, typer.Option(help="With --again: auto, kafka or archive. Default: as then.")] = None,
    bootstrap_servers: Annotated[str | None, typer.Option(help="Where --head is read. Default: the profile's.")] = None,
) -> None:
    """Check a certificate and what came before it, or a whole chain; without --head nothing but files is needed."""
    if (certificate is None) == (chain is None):
        raise Terminal(
            "nothing to verify, or two things",
            given=f"file {certificate}, --chain {chain}",
            expected="a file, or --chain with a folder",
            remedy="recount verify FILE, or recount verify --chain FOLDER",
        )
    signature_fault = public_keys(public_key).fault if public_key else None
    if certificate is not None:
        for checked in verify_file(certificate, signature_fault):
            print(checked)
        if signature_fault is None:
            print("signatures were not checked: give the public key, --public-key FILE")
        if again:
            _repeat(certificate, source)
        return
    assert chain is not None
    name = stream or chain.resolve().name
    found, unreadable = _head(head, name, bootstrap_servers) if head else (None, [])
    checked_chain = chain_in(chain, name, signature_fault, found, head_is_asked=head is not None and not unreadable)
    for line in told_of(checked_chain):
        print(line)
    faults = [*checked_chain.faults(), *unreadable]
    if faults:
        raise BrokenChain(name, faults)
    print("the chain is whole")


def _repeat(path: Path, source: str | None) -> None:
    from recount.audit.findings.finding_register import source_named
    from recount.audit.repeated_audit import again
    from recount.declare.registry import declared
    from recount.tables.spark_session import spark_session

    where = None if source is None else source_named(source)
    settings = Settings.from_environment(os.environ).acting_as("audit")
    certificate = load(path)
    topology = declared(settings.topologies).topology(certificate["stream"])
    session = spark_session(settings, f"recount verify {topology.name}")
    try:
        for compared in again(session, settings, topology, certificate, source=where):
            print(compared)
    finally:
        session.stop()


def chain_in(
    folder: Path,
    stream: str,
    signature_fault: SignatureFault | None = None,
    head: Certificate | None = None,
    *,
    head_is_asked: bool = False,
) -> Chain:
    """The chain in ``folder``; a file that is no certificate counts as an altered one."""
    if not folder.is_dir():
        raise Terminal(
            "no such folder",
            given=str(folder),
            expected="a folder with certificates",
            remedy="name certificates/STREAM below the reports",
        )
    files = {path.name: _chain_of(path) for path in sorted(folder.glob("*.json"))}
    return Chain(stream, files, signature_fault=signature_fault, head=head, head_is_asked=head_is_asked)


def keys(
    folder: Annotated[Path | None, typer.Option(help="Where to make them. Default: RECOUNT_KEYS.")] = None,
) -> None:
    """Make the key that signs certificates; prints the public key and its id."""
    named = folder or (Path(os.environ["RECOUNT_KEYS"]) if os.environ.get("RECOUNT_KEYS") else None)
    if named is None:
        raise Terminal(
            "no folder for the keys",
            expected="RECOUNT_KEYS, or --folder",
            remedy="name a folder that only the audit can read, not that of the reports",
        )
    reports = os.environ.get("RECOUNT_REPORTS")
    key_id = make_keys(named, reports=Path(reports) if reports else None)
    print((named / PUBLIC_KEY).read_text(), end="")
    print(f"key id {key_id}, public key in {named / PUBLIC_KEY}")


def _head(topic: str, stream: str, bootstrap_servers: str | None) -> tuple[Certificate | None, list[Fault]]:
    servers = bootstrap_servers or os.environ.get(f"{PREFIX}BOOTSTRAP_SERVERS")
    if not servers:
        raise Terminal(
            "no brokers to ask for the head",
            expected="--bootstrap-servers or RECOUNT_BOOTSTRAP_SERVERS",
            remedy="name the brokers with either",
        )
    prefix = os.environ.get(f"{PREFIX}PREFIX") or "recount"
    try:
        return published_head(_reader(servers, prefix), stream, topic=topic), []
    except UnreadableHead as error:
        return None, [Fault(kind="altered", number=None, what=str(error))]


def _reader(servers: str, prefix: str) -> Connection:
    """Return the connection of a reader of certificates, which may have no settings but the security of the brokers."""
    place = os.environ.get(VARIABLE, "").replace(ROLE, "audit")
    return Connection(bootstrap_servers=servers, security=security_of(place), prefix=prefix)


def _chain_of(path: Path) -> Certificate:
    try:
        return load(path)
    except Terminal:
        return {}
