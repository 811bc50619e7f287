"""The keys of a security setting: all that is missing, unknown or invalid is told at once, and no secret with it."""

from __future__ import annotations

from collections.abc import Mapping
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

from recount.core.errors import Terminal
from recount.kafka.security import ClientCertificate, Mechanism, OAuth, Protocol, Security
from recount.secret_file import fault_of_mode

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
    """What ``protocol`` and ``mechanism`` need and is not given, and what is given and they do not use."""
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
    """What is wrong with certificates that are to be trusted; one that is valid is enough."""
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
