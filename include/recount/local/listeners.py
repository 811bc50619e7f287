"""What the brokers of a home listen to, and who may connect: anybody on this machine, or one principal a role."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Protocol, get_args

from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)

from recount.core.errors import Transient
from recount.core.settings import Role
from recount.kafka.connection import REQUEST_TIMEOUT_S, Connection
from recount.kafka.security_keys import MECHANISM, PASSWORD, PROTOCOL, USERNAME
from recount.kafka.security_place import keys_at, security_of
from recount.local.certificates import CertificateAuthority
from recount.local.ports import LOOPBACK, answers, free_ports
from recount.secret_file import write_secret

ROLES: tuple[Role, ...] = get_args(Role)
_BROKER = "broker"
_SCRAM = "SCRAM-SHA-512"
_ITERATIONS = 4096


class Listeners(Protocol):
    """The ports of brokers by their number, 1 and up, and what their settings say of them."""

    security: str
    """Where clients find their security, as RECOUNT_KAFKA_SECURITY says it."""
    ports: list[int]

    def ports_of(self, node: int) -> tuple[int, ...]:
        """Those at which broker ``node`` listens."""
        ...

    def bootstrap_servers(self) -> str:
        """What clients are given."""
        ...

    def properties(self, node: int) -> Mapping[str, object]:
        """Settings of broker ``node``."""
        ...

    def prepare(self) -> None:
        """Make the files that a broker needs to start."""
        ...

    def are_open(self) -> bool:
        """Whether somebody listens at every port for clients."""
        ...

    def keeper(self) -> Connection:
        """A connection that may do everything."""
        ...

    def admit(self) -> None:
        """Let clients in, once the brokers serve."""
        ...


class OpenListeners:
    """Everybody on this machine may do everything."""

    security = ""

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

    def prepare(self) -> None:
        """Nothing is needed."""

    def are_open(self) -> bool:
        return all(map(answers, self._clients.values()))

    def keeper(self) -> Connection:
        return Connection(bootstrap_servers=self.bootstrap_servers())

    def admit(self) -> None:
        """Everybody is in."""


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
        """What clients are given that have a certificate."""
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
                raise Transient("Kafka has not taken its users", given=str(error), remedy="start again") from None

    def _write_keys(self, name: str, keys: Mapping[str, str]) -> None:
        lines = {**keys, "ssl.ca.location": "ca.pem"}
        self._write(f"{name}.properties", "".join(f"{key}={value}\n" for key, value in lines.items()))

    def _write(self, name: str, text: str) -> None:
        write_secret(self._folder / name, text)


def _by_node(ports: list[int]) -> dict[int, int]:
    return dict(enumerate(ports, start=1))


def _addresses(ports: Mapping[int, int]) -> str:
    return ",".join(f"{LOOPBACK}:{port}" for port in ports.values())


def _of_controllers(ports: Mapping[int, int]) -> dict[str, object]:
    return {
        "controller.quorum.voters": ",".join(f"{node}@{LOOPBACK}:{port}" for node, port in ports.items()),
        "controller.listener.names": "CONTROLLER",
    }
