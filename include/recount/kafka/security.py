"""How clients and brokers prove to each other who they are: one value for all clients and for Spark."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Protocol = Literal["PLAINTEXT", "SASL_SSL", "SSL"]

Mechanism = Literal["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]

_JAVA_MODULES = "org.apache.kafka.common.security"

_OAUTH_CALLBACKS = f"{_JAVA_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler"


class HiddenValues(dict[str, str]):
    """Client properties of which some are secrets: shows their names only."""

    def __repr__(self) -> str:
        return f"HiddenValues({', '.join(sorted(self))})"

    __str__ = __repr__


@dataclass(frozen=True, kw_only=True, repr=False)
class OAuth:
    """How a client gets its token: by the client credentials of OpenID Connect."""

    token_url: str
    client_id: str
    client_secret: str
    scope: str = ""


@dataclass(frozen=True, kw_only=True, repr=False)
class ClientCertificate:
    """A client's certificates, its own first, and its key (PKCS 8, not encrypted), as PEM."""

    chain: str
    key: str
    subject: str


@dataclass(frozen=True, kw_only=True, repr=False)
class Security:
    """Security settings of every client of an installation; ``security_of`` reads and checks them.

    ``authorities`` are PEM certificates of who may have signed those of the brokers; empty: those that the system
    trusts. It never shows a secret: neither as text nor in an error.
    """

    protocol: Protocol = "PLAINTEXT"
    mechanism: Mechanism | None = None
    username: str = ""
    password: str = ""
    oauth: OAuth | None = None
    authorities: str = ""
    certificate: ClientCertificate | None = None

    @property
    def principal(self) -> str:
        """Who the client says that it is."""
        if self.username:
            return f"user {self.username}"
        if self.oauth:
            return f"client {self.oauth.client_id}"
        return f"certificate {self.certificate.subject}" if self.certificate else "nobody"

    def __repr__(self) -> str:
        return f"Security({self})"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.protocol, self.mechanism, "as", self.principal)))

    def of_clients(self) -> HiddenValues:
        """Properties of confluent-kafka's clients."""
        if self.protocol == "PLAINTEXT":
            return HiddenValues()
        found = HiddenValues({"security.protocol": self.protocol})
        if self.mechanism:
            found["sasl.mechanism"] = self.mechanism
        if self.oauth:
            found |= {
                "sasl.oauthbearer.method": "oidc",
                "sasl.oauthbearer.token.endpoint.url": self.oauth.token_url,
                "sasl.oauthbearer.client.id": self.oauth.client_id,
                "sasl.oauthbearer.client.secret": self.oauth.client_secret,
                **({"sasl.oauthbearer.scope": self.oauth.scope} if self.oauth.scope else {}),
                **({"https.ca.pem": self.authorities} if self.authorities else {}),
            }
        elif self.mechanism:
            found |= {"sasl.username": self.username, "sasl.password": self.password}
        if self.authorities:
            found["ssl.ca.pem"] = self.authorities
        if self.certificate:
            found |= {"ssl.certificate.pem": self.certificate.chain, "ssl.key.pem": self.certificate.key}
        return found

    def of_spark(self) -> HiddenValues:
        """Options of Spark's Kafka source. PEM by value, for a path of the driver is none on an executor."""
        if self.protocol == "PLAINTEXT":
            return HiddenValues()
        found: dict[str, str] = {"security.protocol": self.protocol}
        if self.mechanism:
            found |= {"sasl.mechanism": self.mechanism, "sasl.jaas.config": self._jaas()}
        if self.oauth:
            found |= {
                "sasl.login.callback.handler.class": _OAUTH_CALLBACKS,
                "sasl.oauthbearer.token.endpoint.url": self.oauth.token_url,
            }
        if self.authorities:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self.authorities}
        if self.certificate:
            found |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.certificate.chain": self.certificate.chain,
                "ssl.keystore.key": self.certificate.key,
            }
        return HiddenValues({f"kafka.{name}": value for name, value in found.items()})

    def _jaas(self) -> str:
        if self.oauth:
            module = f"{_JAVA_MODULES}.oauthbearer.OAuthBearerLoginModule"
            given = {"clientId": self.oauth.client_id, "clientSecret": self.oauth.client_secret}
            given |= {"scope": self.oauth.scope} if self.oauth.scope else {}
        else:
            kind = "plain.Plain" if self.mechanism == "PLAIN" else "scram.Scram"
            module = f"{_JAVA_MODULES}.{kind}LoginModule"
            given = {"username": self.username, "password": self.password}
        return f"{module} required {' '.join(f'{name}={_quoted(value)}' for name, value in given.items())};"


UNSECURED = Security()


def _quoted(text: str) -> str:
    """``text`` as JAAS has it, which reads it with Java's StreamTokenizer."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
