"""The security of an installation, read from the place that RECOUNT_KAFKA_SECURITY names, and checked.

All missing, unknown and invalid keys are reported at once, no secret with them. The setting's text holds no secret.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from typing import cast, get_args
from urllib.parse import urlsplit

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from recount.kafka.security import UNSECURED, ClientCertificate, Mechanism, OAuth, Protocol, Security
from recount.runtime.errors import Terminal
from recount.runtime.installation import fault_of_mode

PROTOCOL, MECHANISM = "security.protocol", "sasl.mechanism"
USERNAME, PASSWORD = "sasl.username", "sasl.password"
_TOKEN_URL, _CLIENT, _CLIENT_SECRET, _SCOPE = (
    f"sasl.oauthbearer.{name}" for name in ("token.endpoint.url", "client.id", "client.secret", "scope")
)
_KEY_PASSWORD = "ssl.key.password"  # noqa: S105 - a name
_PEM = ("ssl.ca", "ssl.certificate", "ssl.key")
_OF_CERTIFICATES = frozenset({*(f"{name}.{form}" for name in _PEM for form in ("location", "pem")), _KEY_PASSWORD})
_OF_USERS, _OF_TOKENS = frozenset({USERNAME, PASSWORD}), frozenset({_TOKEN_URL, _CLIENT, _CLIENT_SECRET, _SCOPE})
_KNOWN = frozenset({PROTOCOL, MECHANISM, *_OF_CERTIFICATES, *_OF_USERS, *_OF_TOKENS})
_INSTEAD = {
    "sasl.jaas.config": f"{USERNAME} and {PASSWORD}",
    "sasl.mechanisms": MECHANISM,
    "bootstrap.servers": "RECOUNT_BOOTSTRAP_SERVERS",
    **dict.fromkeys(("ssl.truststore.location", "ssl.truststore.certificates"), "ssl.ca.location, a PEM file"),
    "ssl.keystore.location": "ssl.certificate.location and ssl.key.location, PEM files",
}
"""What stands for keys of other clients."""
VARIABLE = "RECOUNT_KAFKA_SECURITY"
AIRFLOW = "airflow:"
"""Begins the name of an Airflow connection."""
_MOUNTED = {"ssl.ca.location": "ca.crt", "ssl.certificate.location": "tls.crt", "ssl.key.location": "tls.key"}
"""The files of a folder, as Kubernetes mounts a secret of a certificate."""
_connections: list[Callable[[str], Mapping[str, str]]] = []


class InvalidSecurity(Terminal):
    """All missing, unknown and invalid keys of a security setting, together."""

    def __init__(self, place: str, faults: list[str]) -> None:
        self.place = place
        self.faults = faults
        super().__init__(
            f"invalid Kafka security in {place}",
            given="; ".join(faults),
            expected=f"{PROTOCOL} PLAINTEXT, SASL_SSL or SSL, with the keys that it needs",
            remedy="mend what is named; docs/security.md lists the keys",
        )


def security_from(keys: Mapping[str, str], place: str, folder: Path = Path()) -> Security:
    """The security that ``keys`` of ``place`` say, with PEM files relative to ``folder``.

    Raises ``InvalidSecurity`` naming every fault.
    """
    given = {name: value for name, value in keys.items() if value}
    faults = [_unknown(name) for name in sorted(given.keys() - _KNOWN)]
    protocol = given.get(PROTOCOL)
    if protocol is None:
        faults.append(f"{PROTOCOL} is missing")
    elif protocol not in get_args(Protocol):
        unsafe = ": passwords would cross the network in clear" if protocol == "SASL_PLAINTEXT" else ""
        faults.append(f"{PROTOCOL} is {protocol!r}, not {', '.join(get_args(Protocol))}{unsafe}")
        protocol = None
    mechanism = given.get(MECHANISM)
    if mechanism is not None and mechanism not in get_args(Mechanism):
        faults.append(f"{MECHANISM} is {mechanism!r}, not {', '.join(get_args(Mechanism))}")
        mechanism = None
    faults += _missing_or_idle(protocol, mechanism, given)
    if given.get(_TOKEN_URL) and not _is_url(given[_TOKEN_URL]):
        faults.append(f"{_TOKEN_URL} is {given[_TOKEN_URL]!r}, not an address that begins with https://")
    texts = {name: _text(name, given, folder, faults) for name in _PEM}
    now = datetime.now(UTC)
    if texts["ssl.ca"]:
        faults += [f"ssl.ca {fault}" for fault in faults_of_authorities(texts["ssl.ca"], now)]
    certificate = None
    if texts["ssl.certificate"] and texts["ssl.key"]:
        password = given.get(_KEY_PASSWORD, "")
        certificate = client_certificate(texts["ssl.certificate"], texts["ssl.key"], password, now)
        if not isinstance(certificate, ClientCertificate):
            faults += certificate
    if faults:
        raise InvalidSecurity(place, faults)
    assert certificate is None or isinstance(certificate, ClientCertificate)
    return Security(
        protocol=cast("Protocol", protocol),
        mechanism=cast("Mechanism | None", mechanism),
        username=given.get(USERNAME, ""),
        password=given.get(PASSWORD, ""),
        oauth=_oauth(given) if mechanism == "OAUTHBEARER" else None,
        authorities=texts["ssl.ca"],
        certificate=certificate,
    )


def _unknown(name: str) -> str:
    near = _INSTEAD.get(name) or next(iter(get_close_matches(name, _KNOWN, 1)), None)
    return f"{name} is unknown" + (f": give {near}" if near else "")


def _missing_or_idle(protocol: str | None, mechanism: str | None, given: Mapping[str, str]) -> list[str]:
    """Keys that ``protocol`` and ``mechanism`` need and lack, and given keys that they do not use."""
    if protocol is None:
        return []
    has_certificate = any(name.startswith(("ssl.certificate.", "ssl.key.")) for name in given)
    needed: set[str] = {MECHANISM} if protocol == "SASL_SSL" and MECHANISM not in given else set()
    used = {PROTOCOL} if protocol == "PLAINTEXT" else {PROTOCOL, *_OF_CERTIFICATES}
    if protocol == "SASL_SSL":
        used |= {MECHANISM}
        if mechanism == "OAUTHBEARER":
            used |= _OF_TOKENS
            needed |= _OF_TOKENS - {_SCOPE}
        elif mechanism is not None:
            used |= _OF_USERS
            needed |= _OF_USERS
        else:
            used |= _OF_USERS | _OF_TOKENS
    faults = [f"{name} is missing" for name in sorted(needed - given.keys())]
    if protocol == "SSL" or (protocol != "PLAINTEXT" and has_certificate):
        faults += [
            f"{name}.location is missing"
            for name in ("ssl.certificate", "ssl.key")
            if not given.keys() & {f"{name}.location", f"{name}.pem"}
        ]
    twice = [name for name in _PEM if {f"{name}.location", f"{name}.pem"} <= given.keys()]
    faults += [f"{name} is given as a file and as PEM" for name in twice]
    how = protocol if mechanism is None else f"{protocol} {mechanism}"
    return faults + [f"{name} is of no use with {how}" for name in sorted((given.keys() & _KNOWN) - used)]


def _text(name: str, given: Mapping[str, str], folder: Path, faults: list[str]) -> str:
    """The PEM text of ``name``, empty where there is none."""
    if (location := given.get(f"{name}.location")) is None:
        return given.get(f"{name}.pem", "")
    path = folder / location
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        faults.append(f"{name}.location: {path} cannot be read ({_why(error)})")
        return ""
    if name == "ssl.key" and (fault := fault_of_mode(path)):
        faults.append(fault)
    return text


def _why(error: OSError | UnicodeDecodeError) -> str:
    return str(error.strerror) if isinstance(error, OSError) else "no text"


def _is_url(text: str) -> bool:
    """Secrets go there; in clear they may go to this machine only."""
    try:
        parts = urlsplit(text)
        host = parts.hostname
    except ValueError:
        return False
    return bool(host) and (parts.scheme == "https" or (parts.scheme == "http" and host in ("127.0.0.1", "localhost")))


def _oauth(given: Mapping[str, str]) -> OAuth:
    return OAuth(
        token_url=given[_TOKEN_URL],
        client_id=given[_CLIENT],
        client_secret=given[_CLIENT_SECRET],
        scope=given.get(_SCOPE, ""),
    )


def faults_of_authorities(text: str, now: datetime) -> list[str]:
    """Faults of certificates that are to be trusted; one that is valid is enough."""
    try:
        found = x509.load_pem_x509_certificates(text.encode())
    except ValueError:
        return ["holds no PEM certificates"]
    faults = [fault for certificate in found if (fault := _fault_of_time(certificate, now))]
    return faults if len(faults) == len(found) else []


def client_certificate(chain: str, key: str, password: str, now: datetime) -> ClientCertificate | list[str]:
    """The certificate with its key, or what is wrong with them; names neither key nor password."""
    faults, found, private = [], None, None
    try:
        found = x509.load_pem_x509_certificates(chain.encode())[0]
    except ValueError:
        faults.append("ssl.certificate holds no PEM certificate")
    try:
        private = load_pem_private_key(key.encode(), password.encode() or None)
    except TypeError:
        said = "is not encrypted: leave ssl.key.password out" if password else "is encrypted: give ssl.key.password"
        faults.append(f"ssl.key {said}")
    except (ValueError, UnsupportedAlgorithm):
        wrong = ", or ssl.key.password does not open it" if password else ""
        faults.append(f"ssl.key holds no PEM private key{wrong}")
    if found is not None:
        faults += filter(None, [fault and f"ssl.certificate {fault}" for fault in [_fault_of_time(found, now)]])
    if found is not None and private is not None:
        form = (Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
        if found.public_key().public_bytes(*form) != private.public_key().public_bytes(*form):
            faults.append("ssl.key is not the key of ssl.certificate")
    if faults or found is None or private is None:
        return faults
    plain = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    return ClientCertificate(chain=chain, key=plain, subject=found.subject.rfc4514_string())


def _fault_of_time(certificate: x509.Certificate, now: datetime) -> str | None:
    first, last = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > last:
        return f"({certificate.subject.rfc4514_string()}) expired at {last:%Y-%m-%d %H:%M} UTC"
    if now < first:
        return f"({certificate.subject.rfc4514_string()}) is not valid before {first:%Y-%m-%d %H:%M} UTC"
    return None


def read_connections_by(keys_of: Callable[[str], Mapping[str, str]]) -> None:
    """Let ``keys_of`` give the keys of an Airflow connection by its name; the processes of Airflow can."""
    _connections[:] = [keys_of]


def security_of(place: str) -> Security:
    """The security at ``place``: a properties or JSON file, a folder of certificates, an Airflow connection, or none.

    Raises ``InvalidSecurity`` naming every fault.
    """
    if not place:
        return UNSECURED
    return security_from(keys_at(place), place, _folder(place))


def keys_at(place: str) -> Mapping[str, str]:
    """The keys at ``place``, secrets among them, as they are written there."""
    if place.startswith(AIRFLOW):
        return _keys_of_connection(place)
    path = Path(place)
    if path.is_dir():
        return {PROTOCOL: "SSL", **{key: name for key, name in _MOUNTED.items() if (path / name).exists()}}
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is no text"
        raise InvalidSecurity(place, [f"{VARIABLE} names what cannot be read: {why}"]) from None
    if fault := fault_of_mode(path):
        raise InvalidSecurity(place, [fault])
    return _of_json(text, place) if path.suffix == ".json" else _of_properties(text, place)


def _folder(place: str) -> Path:
    """The folder to which paths in ``place`` are relative."""
    path = Path(place)
    return path if path.is_dir() else path.parent


def _keys_of_connection(place: str) -> Mapping[str, str]:
    if not _connections:
        raise Terminal(
            "an Airflow connection is asked for outside of Airflow",
            given=f"{VARIABLE}={place}",
            expected="a file: only the processes of Airflow can read its connections",
            remedy=f"set {VARIABLE} to a properties or JSON file for this process",
        )
    return _connections[0](place.removeprefix(AIRFLOW))


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
    found, faults = {}, []
    for number, line in enumerate(map(str.strip, text.splitlines()), start=1):
        if not line or line.startswith(("#", "!")):
            continue
        name, is_set, value = line.partition("=")
        if not is_set:
            faults.append(f"line {number} is not name=value")
        elif name.strip() in found:
            faults.append(f"line {number} gives {name.strip()} again")
        found[name.strip()] = value.strip()
    if faults:
        raise InvalidSecurity(place, faults)
    return found
