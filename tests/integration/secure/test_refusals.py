"""Whom a secured broker refuses, and for what: one Terminal error that says it, at once and without the secret."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.integration.secure.chain import Chain
from tests.integration.secure.tills import sales

from recount.kafka.connection import Connection, NotAllowed
from recount.kafka.leases import Lease
from recount.kafka.offsets import committed_offsets, require_topics
from recount.kafka.security import PASSWORD, NotAdmitted, Security, forget_admissions, keys_at, security_of
from recount.kafka.status import StreamStatus
from recount.profile.embedded_kafka import EmbeddedKafka
from recount.profile.listeners import ROLES, CertificateAuthority, SecuredListeners
from recount.runtime.errors import RecountError
from recount.runtime.installation import write_secret
from recount.runtime.settings import Role

WRONG = "not-the-passw0rd"


@pytest.fixture
def listeners(secured: EmbeddedKafka) -> SecuredListeners:
    assert isinstance(secured.listeners, SecuredListeners)
    return secured.listeners


@pytest.fixture
def of_stream(secured: EmbeddedKafka) -> Security:
    return security_of(secured.security.format(role="stream"))


def authority_of(secured: EmbeddedKafka) -> CertificateAuthority:
    return CertificateAuthority(Path(secured.security).parent)


def certified(authority: CertificateAuthority, name: str, trusted: str, valid_days: int = 1) -> Security:
    chain, key = authority.issue(name, valid=timedelta(days=valid_days))
    pem = {"ssl.ca.pem": trusted, "ssl.certificate.pem": chain, "ssl.key.pem": key}
    return Security({"security.protocol": "SSL", **pem})


def refused(servers: str, security: Security) -> NotAdmitted:
    """Why the broker, or the client, does not go on; it must be said long before calls time out."""
    forget_admissions()
    began = time.monotonic()
    with pytest.raises(NotAdmitted) as raised:
        Connection(bootstrap_servers=servers, security=security).producer()
    assert time.monotonic() - began < 10
    assert WRONG not in f"{raised.value} {raised.value!r}"
    return raised.value


def test_a_wrong_password_is_told_at_once(secured: EmbeddedKafka, of_stream: Security) -> None:
    error = refused(secured.bootstrap_servers, Security({**of_stream, PASSWORD: WRONG}))
    assert error.refusal == "credentials"
    assert "user stream" in str(error.given)
    assert "RECOUNT_KAFKA_SECURITY" in error.remedy


def test_a_broker_that_nobody_vouches_for_is_told(secured: EmbeddedKafka, of_stream: Security, tmp_path: Path) -> None:
    stranger = CertificateAuthority(tmp_path).certificate_file.read_text()
    security = Security({**of_stream, "ssl.ca.pem": stranger})
    assert refused(secured.bootstrap_servers, security).refusal == "broker certificate"


def test_a_broker_whose_certificate_has_expired_is_told(
    secured: EmbeddedKafka, listeners: SecuredListeners, of_stream: Security
) -> None:
    with serving_a_certificate_of(secured, listeners, valid_days=-1):
        error = until(lambda: let_in(secured, of_stream), RecountError)
        assert isinstance(error, NotAdmitted)
        assert error.refusal == "broker certificate"
    until(lambda: let_in(secured, of_stream), None)


def let_in(secured: EmbeddedKafka, security: Security) -> None:
    forget_admissions()
    Connection(bootstrap_servers=secured.bootstrap_servers, security=security).producer()


def test_a_client_whose_certificate_has_expired_or_is_a_strangers_is_told(
    secured: EmbeddedKafka, listeners: SecuredListeners, tmp_path: Path
) -> None:
    authority = authority_of(secured)
    trusted = authority.certificate_file.read_text()
    for issued in (
        certified(authority, "stream", trusted, valid_days=-1),
        certified(CertificateAuthority(tmp_path), "stream", trusted),
    ):
        assert refused(listeners.certificate_servers(), issued).refusal == "client certificate"


def test_a_certificate_of_a_role_may_do_what_its_password_may(
    chain: Chain, secured: EmbeddedKafka, listeners: SecuredListeners
) -> None:
    authority = authority_of(secured)
    trusted = authority.certificate_file.read_text()
    found = {}
    for name in ("audit", "nobody"):
        security = certified(authority, name, trusted)
        connection = Connection(bootstrap_servers=listeners.certificate_servers(), security=security)
        found[name] = set(connection.admin().list_topics(timeout=15).topics)
    assert {"sales", "takings", "recount.certificates"} <= found["audit"]
    assert found["nobody"] == set()


def connection_of(chain: Chain, role: Role) -> Connection:
    return Connection.of(chain.settings.acting_as(role))


def take_a_lease(chain: Chain) -> None:
    lease = Lease.acquire(connection_of(chain, "stream"), "takings")
    told: dict[str, Any] = {"driver_id": "test", "host": "here", "pid": 1, "started_at_ms": 0, "heartbeat_ms": 0}
    try:
        lease.publish(StreamStatus(stream="takings", lease_epoch=lease.epoch, state="failed", **told))
    except RecountError:
        with suppress(RecountError):
            lease.publish(StreamStatus(stream="takings", lease_epoch=lease.epoch, state="failed", **told))
        raise
    finally:
        lease.release()


def read_the_offsets(chain: Chain) -> None:
    committed_offsets(connection_of(chain, "audit"), "recount.takings", [(sales.name, 0)])


def see_the_source(chain: Chain) -> None:
    require_topics(connection_of(chain, "stream"), [sales.name], ())


def make_the_topics(chain: Chain) -> None:
    chain.create_topics()


@pytest.mark.parametrize(
    ("do", "role", "resource", "name", "operation"),
    [
        (take_a_lease, "stream", "transactional-id", "recount.takings.lease", "Write"),
        (take_a_lease, "stream", "topic", "recount.status", "Read"),
        (take_a_lease, "stream", "topic", "recount.history", "Write"),
        (take_a_lease, "stream", "topic", "recount.status", "Write"),
        (take_a_lease, "stream", "group", "recount.view", "Describe"),
        (see_the_source, "stream", "topic", "sales", "Read"),
        (read_the_offsets, "audit", "group", "recount.takings", "Describe"),
        (make_the_topics, "admin", "topic", "sales", "DescribeConfigs"),
        (make_the_topics, "admin", "topic", "sales", "Describe"),
    ],
)
def test_an_acl_that_is_missing_is_told(
    do: Callable[[Chain], None], role: Role, resource: str, name: str, operation: str, chain: Chain
) -> None:
    chain.permit(chain.acls)
    until(lambda: do(chain), None)
    chain.permit(
        [a for a in chain.acls if (a.role, a.resource, a.name, a.operation) != (role, resource, name, operation)]
    )
    try:
        error = until(lambda: do(chain), RecountError)
    finally:
        chain.permit(chain.acls)
    problems = list(getattr(error, "problems", {"": error}).values())
    assert all(isinstance(one, NotAllowed) for one in problems), error
    assert "recount acls" in problems[0].expected


def until(do: Callable[[], None], expected: type[RecountError] | None, limit_s: float = 20) -> RecountError | None:
    """How ``do`` ends once a change of ACLs, which brokers hear of a moment later, is in force."""
    deadline = time.monotonic() + limit_s
    while True:
        error: RecountError | None = None
        try:
            do()
        except RecountError as raised:
            error = raised
        if (error is not None) == (expected is not None) or time.monotonic() > deadline:
            assert (error is not None) == (expected is not None), error
            return error
        time.sleep(0.1)


def test_nothing_of_it_is_for_others(secured: EmbeddedKafka, chain: Chain) -> None:
    """Not on the network, not in files of others, not in command lines and environments, not in the broker's log."""
    folder = Path(secured.security).parent
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert folder.stat().st_mode & 0o777 == 0o700
    ports = listening(folder.parent)
    assert ports
    assert {address for address, _ in ports} <= {"127.0.0.1", "::ffff:127.0.0.1"}
    words = secrets_of(secured)
    assert len(words) == len(ROLES)
    shown = shown_by_processes() + "".join(
        log.read_text(errors="replace") for log in (folder.parent / "logs").glob("*.log")
    )
    assert "kafka.Kafka" in shown
    assert not [role for role, word in words.items() if word in shown]


def secrets_of(secured: EmbeddedKafka) -> dict[Role, str]:
    return {role: keys_at(secured.security.format(role=role))[PASSWORD] for role in ROLES}


def shown_by_processes() -> str:
    """All that others can read of what runs on this machine, and its owner of the environments."""
    found = []
    for place in ("cmdline", "environ"):
        for path in Path("/proc").glob(f"[0-9]*/{place}"):
            try:
                found.append(path.read_bytes().decode(errors="replace"))
            except OSError:
                continue
    return "\n".join(found)


def listening(home: Path) -> set[tuple[str, int]]:
    """Where the broker of ``home`` listens."""
    found = set()
    for process in psutil.process_iter():
        try:
            if any(str(home) in word for word in process.cmdline()):
                found |= {one.laddr for one in process.net_connections("tcp") if one.status == psutil.CONN_LISTEN}
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return {(address.ip, address.port) for address in found}


@contextmanager
def serving_a_certificate_of(secured: EmbeddedKafka, listeners: SecuredListeners, valid_days: int) -> Iterator[None]:
    """Let clients be shown another certificate of the broker while this lasts: it takes one without a new start."""
    admin = listeners.keeper().admin()
    certificate, key = authority_of(secured).issue("broker", valid=timedelta(days=valid_days))
    other = Path(secured.security).parent / "other.pem"
    write_secret(other, key + certificate)

    def show(operation: AlterConfigOpType, path: str) -> None:
        name = "listener.name.clients.ssl.keystore.location"
        entry = ConfigEntry(name, path, incremental_operation=operation)
        resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
        admin.incremental_alter_configs([resource])[resource].result(15)

    show(AlterConfigOpType.SET, str(other))
    try:
        yield
    finally:
        show(AlterConfigOpType.DELETE, "")
        other.unlink()
