"""Certificates made locally, for the embedded broker's TLS listener and its clients."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tailrace.embedded.files import folder, write_whole
from tailrace.embedded.ports import LOOPBACK

LIFE = dt.timedelta(days=825)


@dataclass(frozen=True)
class Certificates:
    """PEM files: the authority, the broker's pair, and a pair for clients."""

    ca: Path
    broker: Path
    certificate: Path
    key: Path

    def broker_properties(self) -> dict[str, str]:
        """What server.properties needs so that only clients of this authority get in."""
        return {
            "ssl.client.auth": "required",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.broker),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.ca),
        }


def make_certificates(place: Path) -> Certificates:
    """The certificates in `place`, made if they are not there. Keys are readable by their owner only."""
    made = Certificates(place / "ca.pem", place / "broker.pem", place / "client.pem", place / "client.key")
    if made.key.exists() and made.broker.exists():
        return made
    folder(place, "state")
    ca_key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tailrace embedded authority")])
    ca = _certificate(name, ca_key.public_key(), name, ca_key, authority=True)
    write_whole(made.ca, _pem(ca))
    broker_key, broker = _signed("broker", name, ca_key)
    write_whole(made.broker, _key_pem(broker_key) + _pem(broker) + _pem(ca), mode=0o600)
    client_key, client = _signed("client", name, ca_key)
    write_whole(made.certificate, _pem(client))
    write_whole(made.key, _key_pem(client_key), mode=0o600)
    return made


def _signed(
    who: str, issuer: x509.Name, ca_key: ec.EllipticCurvePrivateKey
) -> tuple[ec.EllipticCurvePrivateKey, x509.Certificate]:
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"tailrace-{who}")])
    return key, _certificate(subject, key.public_key(), issuer, ca_key, authority=False)


def _certificate(
    subject: x509.Name,
    public: ec.EllipticCurvePublicKey,
    issuer: x509.Name,
    signer: ec.EllipticCurvePrivateKey,
    *,
    authority: bool,
) -> x509.Certificate:
    now = dt.datetime.now(dt.timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + LIFE)
        .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False)
    )
    if not authority:
        hosts = [x509.DNSName("localhost"), x509.IPAddress(ipaddress.ip_address(LOOPBACK))]
        both = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(both), critical=False)
    return builder.sign(signer, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(Encoding.PEM).decode()


def _key_pem(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
