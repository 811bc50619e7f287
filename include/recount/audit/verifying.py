"""``recount verify`` and ``recount keys``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from recount.audit.certificate import load, verify_file
from recount.audit.signing import PUBLIC_KEY, make_keys, public_keys
from recount.core.certificate import Certificate, SignatureFault
from recount.core.chain import Chain, Fault, told_of
from recount.core.errors import Terminal
from recount.core.settings import PREFIX, ROLE, Settings
from recount.kafka.connection import Connection
from recount.kafka.heads import UnreadableHead, published_head
from recount.kafka.security_place import VARIABLE, security_of


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
    from recount.audit.again import again
    from recount.audit.findings import source_named
    from recount.core.registry import declared
    from recount.sessions import spark_session

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
    files = {path.name: _loaded(path) for path in sorted(folder.glob("*.json"))}
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
    """Of who checks certificates, and may have no other settings than the security of the brokers."""
    place = os.environ.get(VARIABLE, "").replace(ROLE, "audit")
    return Connection(bootstrap_servers=servers, security=security_of(place), prefix=prefix)


def _loaded(path: Path) -> Certificate:
    try:
        return load(path)
    except Terminal:
        return {}
