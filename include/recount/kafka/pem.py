"""Certificates and keys as PEM, checked before any client is given them."""

from __future__ import annotations

from datetime import datetime

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
    load_pem_private_key,
)

from recount.kafka.security import ClientCertificate


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
