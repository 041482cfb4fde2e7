"""The machine's certificate authorities, as a trust store that any Java reads."""

from __future__ import annotations

import hashlib
import os
import re
import warnings
from collections.abc import Mapping
from pathlib import Path

from tailrace.embedded.files import folder

PASSWORD = "changeit"  # what Java itself uses: authorities are not secret
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def trust_store(cache: Path, environ: Mapping[str, str] = os.environ) -> Path | None:
    """A PKCS12 store of the system's authorities, made once for each state of them; None when there are none."""
    bundle = next((path for path in _bundles(environ) if path.is_file()), None)
    if bundle is None:
        return None
    content = bundle.read_bytes()
    place = folder(cache / "trust", "cache")
    store = place / f"{hashlib.sha256(content).hexdigest()[:16]}.p12"
    if not store.exists():
        made = _pkcs12(content)
        if made is None:
            return None
        part = place / f".{store.name}.{os.getpid()}"
        part.write_bytes(made)
        part.replace(store)
    return store


def trust_options(store: Path | None) -> list[str]:
    """What a `java` command needs to use the store."""
    if store is None:
        return []
    return [
        f"-Djavax.net.ssl.trustStore={store}",
        "-Djavax.net.ssl.trustStoreType=PKCS12",
        f"-Djavax.net.ssl.trustStorePassword={PASSWORD}",
    ]


def _bundles(environ: Mapping[str, str]) -> list[Path]:
    named = [environ[name] for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE") if environ.get(name)]
    return [Path(name) for name in (*named, *BUNDLES)]


def _pkcs12(bundle: bytes) -> bytes | None:
    from cryptography import x509
    from cryptography.hazmat.primitives.serialization import BestAvailableEncryption
    from cryptography.hazmat.primitives.serialization.pkcs12 import PKCS12Certificate, serialize_java_truststore

    certificates = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # old roots bend today's rules, and are trusted all the same
        for pem in _PEM.findall(bundle):
            try:
                certificate = x509.load_pem_x509_certificate(pem)
                alias = hashlib.sha256(pem).hexdigest()
                certificates[alias] = PKCS12Certificate(certificate, alias.encode())
            except ValueError:
                continue
        if not certificates:
            return None
        return serialize_java_truststore(list(certificates.values()), BestAvailableEncryption(PASSWORD.encode()))
