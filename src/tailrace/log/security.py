"""How clients reach the broker: addresses and TLS, for librdkafka and for Spark, from the same settings."""

from __future__ import annotations

import socket
import ssl
from pathlib import Path

from tailrace.errors import ServiceError, SettingsError
from tailrace.settings import Settings, TlsSettings


def client_config(settings: Settings) -> dict[str, str]:
    """The part of a librdkafka configuration that says where the broker is and who we are.

    PEM files are read here, so a missing or mixed-up file is a SettingsError that names the setting, not a broken
    connection later.
    """
    config = {"bootstrap.servers": bootstrap(settings), "client.id": "tailrace"}
    tls = settings.kafka.tls
    if not _wanted(tls):
        return config
    ca, certificate, key = _pems(tls)
    config["security.protocol"] = "ssl"
    if ca:
        config["ssl.ca.pem"] = ca
    if certificate and key:
        config["ssl.certificate.pem"] = certificate
        config["ssl.key.pem"] = key
    if not tls.verify_hostname:
        config["ssl.endpoint.identification.algorithm"] = "none"
    return config


def java_config(settings: Settings) -> dict[str, str]:
    """The same as properties of the Java client (PEM in the configuration itself, nothing written to disk)."""
    config = {"bootstrap.servers": bootstrap(settings)}
    tls = settings.kafka.tls
    if not _wanted(tls):
        return config
    ca, certificate, key = _pems(tls)
    config["security.protocol"] = "SSL"
    if ca:
        config["ssl.truststore.type"] = "PEM"
        config["ssl.truststore.certificates"] = ca
    if certificate and key:
        config["ssl.keystore.type"] = "PEM"
        config["ssl.keystore.certificate.chain"] = certificate
        config["ssl.keystore.key"] = _pkcs8(key)
    if not tls.verify_hostname:
        config["ssl.endpoint.identification.algorithm"] = ""
    return config


def spark_options(settings: Settings) -> dict[str, str]:
    """The same as options of Spark's Kafka source and sink."""
    return {f"kafka.{name}": value for name, value in java_config(settings).items()}


def bootstrap(settings: Settings) -> str:
    """The broker addresses, or a SettingsError that says where to write them."""
    if settings.kafka.bootstrap:
        return settings.kafka.bootstrap
    raise SettingsError(
        "No Kafka broker is known: kafka.bootstrap is not set.",
        "Start the embedded stack with `tailrace up`, or set [kafka] bootstrap in tailrace.toml "
        "(TAILRACE_KAFKA__BOOTSTRAP).",
    )


def explain(settings: Settings, reason: str) -> ServiceError:
    """A refused connection as an error that names the setting which is missing or wrong.

    `reason` is what librdkafka says about it.
    """
    tls = settings.kafka.tls
    broker = f"the broker at {settings.kafka.bootstrap}"
    low = reason.lower()
    cut_off = "handshake" in low or "alert" in low or "disconnected" in low or "security.protocol" in low
    if "verify failed" in low:
        authority = "is not the one that signed it" if tls.ca else "is not set"
        return ServiceError(
            f"The certificate of {broker} is not trusted: kafka.tls.ca {authority}.",
            "Set kafka.tls.ca (TAILRACE_KAFKA__TLS__CA) to the authority's certificate, PEM text or file.",
        )
    if "hostname mismatch" in low or "ip address mismatch" in low:
        return ServiceError(
            f"The certificate of {broker} names another host.",
            "Use the name in the certificate for kafka.bootstrap, or set kafka.tls.verify_hostname = false.",
        )
    if cut_off and not _wanted(tls):
        return ServiceError(
            f"A connection without TLS was closed by {broker}: kafka.tls.ca is not set.",
            "If it listens for TLS, set kafka.tls.ca, kafka.tls.certificate and kafka.tls.key "
            "(TAILRACE_KAFKA__TLS__CA, …__CERTIFICATE, …__KEY; PEM text or file).",
        )
    if cut_off and not tls.certificate:
        return ServiceError(
            f"A client certificate is asked for by {broker}: kafka.tls.certificate is not set.",
            "Set kafka.tls.certificate and kafka.tls.key (TAILRACE_KAFKA__TLS__CERTIFICATE, …__KEY; PEM text or file).",
        )
    if cut_off:
        return ServiceError(
            f"The client certificate of kafka.tls.certificate is refused by {broker}: {reason}",
            "Use a certificate that the broker's authority signed and that has not expired.",
        )
    return ServiceError(
        f"No answer from {broker}: {reason}",
        "Check that it runs (`tailrace status`) and that kafka.bootstrap is right.",
    )


def speaks_tls(settings: Settings) -> bool:
    """Whether the first broker wants TLS and the settings do not. librdkafka says nothing about a TLS listener that
    is spoken to in plain."""
    if _wanted(settings.kafka.tls):
        return False
    host, _, port = bootstrap(settings).split(",")[0].strip().rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        with socket.create_connection((host.strip("[]"), int(port)), 1.0) as plain, context.wrap_socket(plain):
            return True
    except (OSError, ValueError):
        return False


def _wanted(tls: TlsSettings) -> bool:
    return bool(tls.enabled or tls.ca or tls.certificate or tls.key)


def _pems(tls: TlsSettings) -> tuple[str | None, str | None, str | None]:
    secret = tls.key.get_secret_value() if tls.key else None
    if tls.certificate and not secret:
        raise SettingsError(
            "kafka.tls.certificate is set, but kafka.tls.key is not.",
            "Set kafka.tls.key (TAILRACE_KAFKA__TLS__KEY) to the certificate's private key, PEM text or file.",
        )
    if secret and not tls.certificate:
        raise SettingsError(
            "kafka.tls.key is set, but kafka.tls.certificate is not.",
            "Set kafka.tls.certificate (TAILRACE_KAFKA__TLS__CERTIFICATE), PEM text or file.",
        )
    return _pem("ca", tls.ca), _pem("certificate", tls.certificate), _pem("key", secret)


def _pem(name: str, value: str | None) -> str | None:
    """PEM text from text or file. The value of a key is never part of an error."""
    if not value:
        return None
    variable = f"TAILRACE_KAFKA__TLS__{name.upper()}"
    if "-----BEGIN" in value:
        # Environment files often carry the text on one line, with \n written out.
        text = value.replace("\\n", "\n")
    else:
        try:
            text = Path(value).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError, ValueError) as problem:
            shown = "its file" if name == "key" else f"{value[:80]!r}"
            raise SettingsError(
                f"kafka.tls.{name} is neither PEM text nor a readable file ({shown}: {type(problem).__name__}).",
                f"Set {variable} to the PEM text, or to the path of a file that holds it.",
            ) from None
    label = "PRIVATE KEY-----" if name == "key" else "CERTIFICATE-----"
    if label not in text:
        raise SettingsError(
            f"kafka.tls.{name} holds no '-----BEGIN … {label}' block.",
            f"Set {variable} to a PEM {'private key' if name == 'key' else 'certificate'}.",
        )
    return text.strip() + "\n"


def _pkcs8(key: str) -> str:
    """The Java client reads PKCS #8 only; OpenSSL also writes the older forms."""
    if "BEGIN PRIVATE KEY" in key or "ENCRYPTED" in key:
        return key
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(key.encode(), password=None)
    return private.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    ).decode()
