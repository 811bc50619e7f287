"""A certificate authority for one home, made at the first start; what it signs is for this machine only."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from recount.local.ports import LOOPBACK
from recount.secret_file import write_secret

_VALID = timedelta(days=3650)
_CLOCKS_APART = timedelta(minutes=5)


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
