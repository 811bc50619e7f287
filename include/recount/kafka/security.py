"""The security of Kafka's clients, read from the place that RECOUNT_KAFKA_SECURITY names, and what Spark needs of it.

The names of keys are those of librdkafka, which says what is wrong with their values: a client is made of them before
any broker is asked. The setting's text holds no secret, and no text or error of this module shows one.

Whether the brokers let this process in is asked once, before its first client of a secured cluster. librdkafka takes a
wrong password and an expired certificate for an outage: it tries again for ever, tells a callback of each time, and
lets the calls of its clients time out. So a client that waits asks here for the reported errors.
"""

import json
import threading
import time
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from recount.runtime.errors import Terminal, Transient
from recount.runtime.installation import fault_of_mode

PROTOCOL, MECHANISM = "security.protocol", "sasl.mechanism"
USERNAME, PASSWORD = "sasl.username", "sasl.password"
_TOKEN_URL, _CLIENT, _CLIENT_SECRET, _SCOPE = (
    f"sasl.oauthbearer.{name}" for name in ("token.endpoint.url", "client.id", "client.secret", "scope")
)
_CA, _CERTIFICATE, _KEY = _PEM = ("ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem")
_LOCATIONS = {name: name.replace(".pem", ".location") for name in _PEM}
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - a name
_OF_SASL = (USERNAME, PASSWORD, _TOKEN_URL, _CLIENT, _CLIENT_SECRET, _SCOPE)
_KNOWN = frozenset({PROTOCOL, MECHANISM, *_OF_SASL, *_PEM, *_LOCATIONS.values(), _KEY_PASSWORD})
_PROTOCOLS = ("PLAINTEXT", "SASL_SSL", "SSL")
"""Not SASL_PLAINTEXT: passwords would cross the network in clear."""
_MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
_SAFE_URLS = ("https://", "http://127.0.0.1:", "http://localhost:")
VARIABLE = "RECOUNT_KAFKA_SECURITY"
AIRFLOW = "airflow:"
"""Begins the name of an Airflow connection."""
_MOUNTED = {"ssl.ca.location": "ca.crt", "ssl.certificate.location": "tls.crt", "ssl.key.location": "tls.key"}
"""The files of a folder, as Kubernetes mounts a secret of a certificate."""
_JAVA = "org.apache.kafka.common.security"
_connections: list[Callable[[str], Mapping[str, str]]] = []


class InvalidSecurity(Terminal):
    """Faults of a security setting: of all keys and files together, or else what librdkafka says of them."""

    def __init__(self, place: str, faults: list[str]) -> None:
        self.place = place
        self.faults = faults
        super().__init__(
            f"invalid Kafka security in {place}",
            given="; ".join(faults),
            expected=f"{PROTOCOL} PLAINTEXT, SASL_SSL or SSL, with the keys that it needs",
            remedy="mend what is named; docs/security.md lists the keys",
        )


class HiddenValues(dict[str, str]):
    """Client properties of which some are secrets: shows their names only."""

    def __repr__(self) -> str:
        return f"HiddenValues({', '.join(sorted(self))})"

    __str__ = __repr__


class Security(HiddenValues):
    """Security keys of every client of an installation, PEM as texts and its key unencrypted; none: ``PLAINTEXT``.

    ``security_of`` reads and checks them.
    """

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(frozenset(self.items()))

    @property
    def principal(self) -> str:
        """Who the client says that it is."""
        if who := self.get(USERNAME):
            return f"user {who}"
        if who := self.get(_CLIENT):
            return f"client {who}"
        if chain := self.get(_CERTIFICATE):
            return f"certificate {x509.load_pem_x509_certificates(chain.encode())[0].subject.rfc4514_string()}"
        return "nobody"

    def __repr__(self) -> str:
        return f"Security({self})"

    def __str__(self) -> str:
        return " ".join(filter(None, (self.get(PROTOCOL, "PLAINTEXT"), self.get(MECHANISM), "as", self.principal)))

    def of_clients(self) -> HiddenValues:
        found = HiddenValues(self)
        if _CLIENT in self:
            found["sasl.oauthbearer.method"] = "oidc"
            if _CA in self:
                found["https.ca.pem"] = self[_CA]
        return found

    def of_spark(self) -> HiddenValues:
        """Options of Spark's Kafka source. PEM by value, for a path of the driver is none on an executor."""
        found = {name: self[name] for name in (PROTOCOL, MECHANISM, _TOKEN_URL) if name in self}
        if MECHANISM in self:
            found["sasl.jaas.config"] = self._jaas()
        if _CLIENT in self:
            found["sasl.login.callback.handler.class"] = f"{_JAVA}.oauthbearer.OAuthBearerLoginCallbackHandler"
        if _CA in self:
            found |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": self[_CA]}
        if _CERTIFICATE in self:
            found |= {"ssl.keystore.type": "PEM", "ssl.keystore.key": self[_KEY]}
            found["ssl.keystore.certificate.chain"] = self[_CERTIFICATE]
        return HiddenValues({f"kafka.{name}": value for name, value in found.items()})

    def _jaas(self) -> str:
        if _CLIENT in self:
            module, names = "oauthbearer.OAuthBearer", {"clientId": _CLIENT, "clientSecret": _CLIENT_SECRET}
            names |= {"scope": _SCOPE} if _SCOPE in self else {}
        else:
            module = "plain.Plain" if self[MECHANISM] == "PLAIN" else "scram.Scram"
            names = {"username": USERNAME, "password": PASSWORD}
        options = " ".join(f"{option}={_quoted(self[name])}" for option, name in names.items())
        return f"{_JAVA}.{module}LoginModule required {options};"


UNSECURED = Security()


def _quoted(text: str) -> str:
    """``text`` as JAAS has it, which reads it with Java's StreamTokenizer."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def security_from(keys: Mapping[str, str], place: str, folder: Path = Path()) -> Security:
    """The security that ``keys`` of ``place`` say, with PEM files relative to ``folder``.

    Raises ``InvalidSecurity``.
    """
    given = {name: value for name, value in keys.items() if value}
    faults = [_unknown(name) for name in sorted(given.keys() - _KNOWN)]
    allowed = {PROTOCOL: _PROTOCOLS, **({MECHANISM: _MECHANISMS} if given.get(PROTOCOL) == "SASL_SSL" else {})}
    for name, values in allowed.items():
        if given.get(name) not in values:
            faults.append(f"{name} is {given.get(name, 'missing')}, not one of {', '.join(values)}")
    if given.get(PROTOCOL) == "PLAINTEXT":
        faults += [f"{name} is of no use with PLAINTEXT" for name in sorted(given.keys() & _KNOWN - {PROTOCOL})]
    if not given.get(_TOKEN_URL, _SAFE_URLS[0]).startswith(_SAFE_URLS):
        faults.append(f"{_TOKEN_URL} is not an address that begins with https://")
    for name, location in _LOCATIONS.items():
        if location in given:
            given[name] = _text(location, folder / given.pop(location), faults)
    if (given.get(PROTOCOL) == "SSL" or {_CERTIFICATE, _KEY} & given.keys()) and not {
        _CERTIFICATE,
        _KEY,
    } <= given.keys():
        faults.append("ssl.certificate and ssl.key are not both given")
    if faults:
        raise InvalidSecurity(place, faults)
    if given[PROTOCOL] == "PLAINTEXT":
        return UNSECURED
    try:
        AdminClient({"log_level": 0, **Security(given).of_clients()})
        if _KEY in given:
            given[_KEY] = _plain(given[_KEY], given.pop(_KEY_PASSWORD, None))
    except KafkaException as error:
        raise InvalidSecurity(place, [error.args[0].str()]) from None
    except (TypeError, ValueError, UnsupportedAlgorithm) as error:
        raise InvalidSecurity(place, [f"ssl.key: {error}"]) from None
    return Security(given)


def _unknown(name: str) -> str:
    near = next(iter(get_close_matches(name, _KNOWN, 1)), None)
    return f"{name} is unknown" + (f": give {near}" if near else "")


def _text(name: str, path: Path, faults: list[str]) -> str:
    """The PEM text at ``path``; a fault is added where there is none or others can read a key."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{name}: {path} cannot be read ({_why(error)})")
        return ""
    if not text.strip():
        faults.append(f"{name}: {path} is empty")
    if name == _LOCATIONS[_KEY] and (fault := fault_of_mode(path)):
        faults.append(fault)
    return text


def _why(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "no text"


def _plain(key: str, password: str | None) -> str:
    """``key`` as Java takes it: PKCS 8, not encrypted."""
    private = load_pem_private_key(key.encode(), password.encode() if password else None)
    return private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


def read_connections_by(keys_of: Callable[[str], Mapping[str, str]]) -> None:
    """Let ``keys_of`` give the keys of an Airflow connection by its name; the processes of Airflow can."""
    _connections[:] = [keys_of]


def security_of(place: str) -> Security:
    """The security at ``place``: a properties or JSON file, a folder of certificates, an Airflow connection, or none.

    Raises ``InvalidSecurity``.
    """
    if not place:
        return UNSECURED
    path = Path(place)
    return security_from(keys_at(place), place, path if path.is_dir() else path.parent)


def keys_at(place: str) -> Mapping[str, str]:
    """The keys at ``place``, secrets among them, as they are written there."""
    if place.startswith(AIRFLOW):
        if not _connections:
            raise Terminal.of("airflow-connection-elsewhere", given=f"{VARIABLE}={place}", variable=VARIABLE)
        return _connections[0](place.removeprefix(AIRFLOW))
    path = Path(place)
    if path.is_dir():
        return {PROTOCOL: "SSL", **{key: name for key, name in _MOUNTED.items() if (path / name).exists()}}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidSecurity(place, [f"{VARIABLE} names what cannot be read: {_why(error)}"]) from None
    if fault := fault_of_mode(path):
        raise InvalidSecurity(place, [fault])
    return _of_json(text, place) if path.suffix == ".json" else _of_properties(text, place)


def _of_json(text: str, place: str) -> Mapping[str, str]:
    try:
        found = json.loads(text)
    except ValueError:  # its message has the text, secrets and all
        found = None
    if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
        raise InvalidSecurity(place, ["the file is not a JSON object of texts"])
    return found


def _of_properties(text: str, place: str) -> Mapping[str, str]:
    """Lines ``name=value``; a value is taken as it stands, without escapes."""
    lines = {number: line.strip() for number, line in enumerate(text.splitlines(), start=1)}
    said = {number: line.partition("=") for number, line in lines.items() if line and line[0] not in "#!"}
    if faults := [f"line {number} is not name=value" for number, (_, is_set, _) in said.items() if not is_set]:
        raise InvalidSecurity(place, faults)
    return {name.strip(): value.strip() for name, _, value in said.values()}


PATIENCE_S = 15.0
_POLL_S = 0.02
_CERTIFICATE_ALERTS = range(42, 50)
"""TLS alerts by which a server refuses the certificate of a client, RFC 8446 section 6.2."""
_TOKEN_UNASKED = "Failed to acquire SASL OAUTHBEARER token"  # noqa: S105 - a message of librdkafka
Refusal = Literal["credentials", "broker certificate", "client certificate"]
_REMEDIES: dict[Refusal, tuple[str, str]] = {
    "credentials": (
        "a user and password, or a token, that the brokers know, and a mechanism that they take",
        "mend what RECOUNT_KAFKA_SECURITY names: a password that was changed is changed there too",
    ),
    "broker certificate": (
        "a certificate of the broker that is in force, names its host, and was signed by an authority of ssl.ca",
        "give the authority of the brokers as ssl.ca.location; where theirs has expired, they need a new one",
    ),
    "client certificate": (
        "a certificate that is in force and was signed by an authority of the brokers",
        "have the certificate of ssl.certificate renewed, or give one where the brokers ask for it",
    ),
}
_admitted: set[tuple[int, str, Security]] = set()
_busy = threading.Lock()


class NotAdmitted(Terminal):
    """The brokers refuse this client, or it refuses them; ``refusal`` says what is at fault."""

    def __init__(self, refusal: Refusal, security: Security, said: str) -> None:
        self.refusal = refusal
        expected, remedy = _REMEDIES[refusal]
        super().__init__(
            f"Kafka cannot be used: {refusal} refused", given=f"{security}: {said}", expected=expected, remedy=remedy
        )


def require_admission(process: int, servers: str, security: Security) -> None:
    """Return when a broker has let a client of ``security`` in, now or earlier in ``process``.

    Raises ``NotAdmitted``, or ``Transient`` when no broker has answered within ``PATIENCE_S``.
    """
    asked = (process, servers, security)
    with _busy:
        if asked not in _admitted:
            _ask(servers, security)
            _admitted.add(asked)


def forget_admissions() -> None:
    """Let the next client ask again: brokers do not answer, and may no longer let anybody in."""
    with _busy:
        _admitted.clear()


def _ask(servers: str, security: Security) -> None:
    told: list[KafkaError] = []
    own: dict[str, Any] = {"log_level": 0, "reconnect.backoff.ms": 200, "error_cb": told.append}
    admin = AdminClient({"bootstrap.servers": servers, **own, **security.of_clients()})
    answer = admin.describe_cluster(request_timeout=PATIENCE_S)
    deadline = time.monotonic() + PATIENCE_S
    while not answer.done() and time.monotonic() < deadline:
        admin.poll(_POLL_S)
        for error in told:
            if refusal := _refusal(error):
                raise NotAdmitted(refusal, security, error.str())
    try:
        if answer.done():
            answer.result()
            return
        said = "no answer"
    except KafkaException as error:
        said = str(error.args[0])
    reasons = dict.fromkeys(error.str() for error in told[-2:])
    raise Transient.of(
        "kafka-silent", given=f"{security} at {servers}: {'; '.join((said, *reasons))}", patience_s=PATIENCE_S
    )


def _refusal(error: KafkaError) -> Refusal | None:
    said = error.str()
    if error.code() == KafkaError._AUTHENTICATION:
        return None if _TOKEN_UNASKED in said else "credentials"
    if error.code() == KafkaError._SSL and "certificate" in said:
        return "broker certificate"
    if any(f"SSL alert number {number}" in said for number in _CERTIFICATE_ALERTS):
        return "client certificate"
    return None
