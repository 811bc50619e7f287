"""Listeners of a home's brokers, their certificates, and their ACLs: those of the declared streams, no others.

Anybody on this machine may connect, or one principal a role.
The home's certificate authority is made at the first start; what it signs is for this machine only.
"""

import ipaddress
import secrets
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import get_args

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from recount.kafka.acls import Acl, Operation, Resource
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection, failing
from recount.kafka.security import MECHANISM, PASSWORD, PROTOCOL, USERNAME, keys_at, security_of
from recount.profile.daemon import LOOPBACK, answers, free_ports
from recount.runtime.errors import Transient
from recount.runtime.installation import write_secret
from recount.runtime.settings import Role

_VALID = timedelta(days=3650)
_CLOCKS_APART = timedelta(minutes=5)
ROLES: tuple[Role, ...] = get_args(Role)
_BROKER = "broker"
_SCRAM = "SCRAM-SHA-512"
_ITERATIONS = 4096
_RESOURCES: dict[Resource, ResourceType] = {
    "topic": ResourceType.TOPIC,
    "group": ResourceType.GROUP,
    "transactional-id": ResourceType.TRANSACTIONAL_ID,
}
_OPERATIONS: dict[Operation, AclOperation] = {
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
}
# None stands for any, which the types of confluent-kafka do not know
_EVERY = AclBindingFilter(
    ResourceType.ANY,
    None,  # type: ignore[arg-type]
    ResourcePatternType.ANY,
    None,  # type: ignore[arg-type]
    None,  # type: ignore[arg-type]
    AclOperation.ANY,
    AclPermissionType.ANY,
)


class CertificateAuthority:
    """An authority with its key in ``folder``, made there unless it is there."""

    def __init__(self, folder: Path) -> None:
        self.certificate_file = folder / "ca.pem"
        self._key_file = folder / "ca.key"
        if not self.certificate_file.exists():
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._make()
        self._certificate = x509.load_pem_x509_certificate(self.certificate_file.read_bytes())
        key = load_pem_private_key(self._key_file.read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def issue(self, name: str, *, valid: timedelta = _VALID) -> tuple[str, str]:
        """A certificate of ``name`` for servers and clients on the loopback address, and its key; both PEM.

        A negative ``valid`` makes one that has expired.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        ends = datetime.now(UTC) + valid
        alternatives = [x509.IPAddress(ipaddress.ip_address(LOOPBACK)), x509.DNSName("localhost")]
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = (
            _builder(name, self._certificate.subject, key, ends - abs(valid) - _CLOCKS_APART, ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
            .add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        )
        return _pem(builder.sign(self._key, hashes.SHA256())), _key_pem(key)

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        now = datetime.now(UTC)
        subject = _name("Recount embedded profile")
        builder = _builder("Recount embedded profile", subject, key, now - _CLOCKS_APART, now + _VALID)
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        write_secret(self._key_file, _key_pem(key))
        write_secret(self.certificate_file, _pem(builder.sign(key, hashes.SHA256())))


def _builder(
    name: str, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, begins: datetime, ends: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(_name(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(ends)
    )


def _name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


class OpenListeners:
    """The ports of brokers by their number, 1 and up, at which everybody on this machine may do everything."""

    security = ""
    """Where clients find their security, as RECOUNT_KAFKA_SECURITY says it."""

    def __init__(self, brokers: int, ports: Sequence[int] = ()) -> None:
        self.ports = list(ports) or free_ports(2 * brokers)
        self._clients, self._controllers = _by_node(self.ports[::2]), _by_node(self.ports[1::2])

    def ports_of(self, node: int) -> tuple[int, ...]:
        return self._clients[node], self._controllers[node]

    def bootstrap_servers(self) -> str:
        return _addresses(self._clients)

    def properties(self, node: int) -> Mapping[str, object]:
        clients = f"PLAINTEXT://{LOOPBACK}:{self._clients[node]}"
        return {
            **_of_controllers(self._controllers),
            "listeners": f"{clients},CONTROLLER://{LOOPBACK}:{self._controllers[node]}",
            "advertised.listeners": clients,
            "inter.broker.listener.name": "PLAINTEXT",
        }

    def prepare(self) -> None: ...

    def are_open(self) -> bool:
        return all(map(answers, self._clients.values()))

    def keeper(self) -> Connection:
        """A connection that may do everything."""
        return Connection(bootstrap_servers=self.bootstrap_servers())

    def admit(self) -> None:
        """Let clients in, once the brokers serve: everybody is in."""


class SecuredListeners:
    """TLS everywhere, and nothing is allowed but what an ACL allows.

    Clients prove themselves by a password (SASL_SSL) at one port and by a certificate (SSL) at another, which brokers
    use among themselves, as they do for the controllers'. The keys are in ``folder``, readable by its owner only.
    """

    def __init__(self, brokers: int, folder: Path, ports: Sequence[int] = ()) -> None:
        self.ports = list(ports) or free_ports(3 * brokers)
        self._clients, self._controllers, self._brokers = (_by_node(self.ports[first::3]) for first in range(3))
        self._folder = folder
        self.security = str(folder / "{role}.properties")

    def ports_of(self, node: int) -> tuple[int, ...]:
        return self._clients[node], self._controllers[node], self._brokers[node]

    def bootstrap_servers(self) -> str:
        return _addresses(self._clients)

    def certificate_servers(self) -> str:
        """The bootstrap servers for clients that have a certificate."""
        return _addresses(self._brokers)

    def properties(self, node: int) -> Mapping[str, object]:
        clients = f"CLIENTS://{LOOPBACK}:{self._clients[node]},BROKERS://{LOOPBACK}:{self._brokers[node]}"
        return {
            **_of_controllers(self._controllers),
            "listeners": f"{clients},CONTROLLER://{LOOPBACK}:{self._controllers[node]}",
            "advertised.listeners": clients,
            "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL,CONTROLLER:SSL",
            "inter.broker.listener.name": "BROKERS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": self._folder / "broker.pem",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": self._folder / "ca.pem",
            "listener.name.brokers.ssl.client.auth": "required",
            "listener.name.controller.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": r"RULE:^CN=([^,]+).*$/$1/,DEFAULT",
            "sasl.enabled.mechanisms": _SCRAM,
            "listener.name.clients.scram-sha-512.sasl.jaas.config": (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            ),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": f"User:{_BROKER}",
        }

    def prepare(self) -> None:
        authority = CertificateAuthority(self._folder)
        if not (self._folder / "broker.pem").exists():
            certificate, key = authority.issue(_BROKER)
            self._write(f"{_BROKER}.crt", certificate)
            self._write(f"{_BROKER}.key", key)
            of_broker = {"ssl.certificate.location": f"{_BROKER}.crt", "ssl.key.location": f"{_BROKER}.key"}
            self._write_keys(_BROKER, {PROTOCOL: "SSL", **of_broker})
            self._write("broker.pem", key + certificate)
        for role in ROLES:
            if not (self._folder / f"{role}.properties").exists():
                of_role = {MECHANISM: _SCRAM, USERNAME: role, PASSWORD: secrets.token_urlsafe(24)}
                self._write_keys(role, {PROTOCOL: "SASL_SSL", **of_role})

    def are_open(self) -> bool:
        return all(map(answers, (*self._clients.values(), *self._brokers.values())))

    def keeper(self) -> Connection:
        """The broker's own: it is a client as any other, but one that no ACL binds."""
        security = security_of(str(self._folder / f"{_BROKER}.properties"))
        return Connection(bootstrap_servers=self.certificate_servers(), security=security)

    def admit(self) -> None:
        """Make a user for each role. The keeper tells a broker their passwords: they pass through no command line."""
        scram = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, _ITERATIONS)
        of_roles = {role: keys_at(self.security.format(role=role))[PASSWORD] for role in ROLES}
        users: list[UserScramCredentialAlteration] = [
            UserScramCredentialUpsertion(role, scram, word.encode()) for role, word in of_roles.items()
        ]
        for answer in (
            self.keeper().admin().alter_user_scram_credentials(users, request_timeout=REQUEST_TIMEOUT_S).values()
        ):
            try:
                answer.result()
            except KafkaException as error:
                raise Transient.of("kafka-users-not-taken", given=str(error)) from None

    def _write_keys(self, name: str, keys: Mapping[str, str]) -> None:
        lines = {**keys, "ssl.ca.location": "ca.pem"}
        self._write(f"{name}.properties", "".join(f"{key}={value}\n" for key, value in lines.items()))

    def _write(self, name: str, text: str) -> None:
        write_secret(self._folder / name, text)


Listeners = OpenListeners | SecuredListeners


def _by_node(ports: list[int]) -> dict[int, int]:
    return dict(enumerate(ports, start=1))


def _addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"{LOOPBACK}:{port}" for port in ports.values())


def _of_controllers(ports: Mapping[int, int]) -> dict[str, object]:
    return {
        "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in ports.items()),
        "controller.listener.names": "CONTROLLER",
    }


def permit(keeper: Connection, acls: Iterable[Acl]) -> None:
    """Let exactly ``acls`` be in force: those that are missing are made, all others removed."""
    wanted = {_binding(acl) for acl in acls}
    admin = keeper.admin()
    with failing("changing the ACLs"):
        there = set(admin.describe_acls(_EVERY, request_timeout=REQUEST_TIMEOUT_S).result())
        made = admin.create_acls(list(wanted - there), request_timeout=REQUEST_TIMEOUT_S) if wanted - there else {}
        gone = [_exactly(binding) for binding in there - wanted]
        removed = admin.delete_acls(gone, request_timeout=REQUEST_TIMEOUT_S) if gone else {}
        for answer in (*made.values(), *removed.values()):
            answer.result()


def _binding(acl: Acl) -> AclBinding:
    return AclBinding(
        _RESOURCES[acl.resource],
        acl.name,
        ResourcePatternType.LITERAL,
        f"User:{acl.role}",
        "*",
        _OPERATIONS[acl.operation],
        AclPermissionType.ALLOW,
    )


def _exactly(binding: AclBinding) -> AclBindingFilter:
    return AclBindingFilter(
        binding.restype,
        binding.name,
        binding.resource_pattern_type,
        binding.principal,
        binding.host,
        binding.operation,
        binding.permission_type,
    )
