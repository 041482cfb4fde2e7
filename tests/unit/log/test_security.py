from __future__ import annotations

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tailrace.errors import SettingsError
from tailrace.log.security import client_config, explain, spark_options
from tailrace.settings import KafkaSettings, Settings, TlsSettings

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"


def private_key(form: serialization.PrivateFormat) -> str:
    key = ec.generate_private_key(ec.SECP256R1())
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()).decode()


def settings_with(**tls: object) -> Settings:
    return Settings(kafka=KafkaSettings(bootstrap="broker:9092", tls=TlsSettings.model_validate(tls)))


def test_without_tls_only_the_address_is_told():
    assert client_config(settings_with())["bootstrap.servers"] == "broker:9092"
    assert "security.protocol" not in client_config(settings_with())
    assert spark_options(settings_with()) == {"kafka.bootstrap.servers": "broker:9092"}


def test_a_missing_address_names_its_setting():
    with pytest.raises(SettingsError, match=r"kafka\.bootstrap.*TAILRACE_KAFKA__BOOTSTRAP"):
        client_config(Settings())


def test_pem_text_and_pem_file_are_the_same(tmp_path):
    key = private_key(serialization.PrivateFormat.PKCS8)
    (tmp_path / "cert.pem").write_text(CERTIFICATE)
    (tmp_path / "key.pem").write_text(key)
    by_text = settings_with(ca=CERTIFICATE, certificate=CERTIFICATE, key=key)
    cert, key_file = str(tmp_path / "cert.pem"), str(tmp_path / "key.pem")
    by_file = settings_with(ca=cert, certificate=cert, key=key_file)
    one_line = settings_with(ca=CERTIFICATE.replace("\n", "\\n"), certificate=CERTIFICATE, key=key.replace("\n", "\\n"))
    assert client_config(by_text) == client_config(by_file) == client_config(one_line)
    assert client_config(by_text)["ssl.certificate.pem"] == CERTIFICATE
    assert spark_options(by_text)["kafka.ssl.keystore.key"] == key


def test_an_older_key_format_is_turned_into_the_one_java_reads():
    key = private_key(serialization.PrivateFormat.TraditionalOpenSSL)
    assert "BEGIN EC PRIVATE KEY" in key
    options = spark_options(settings_with(certificate=CERTIFICATE, key=key))
    assert "BEGIN PRIVATE KEY" in options["kafka.ssl.keystore.key"]


@pytest.mark.parametrize(
    ("tls", "named"),
    [
        ({"certificate": CERTIFICATE}, "kafka.tls.key"),
        ({"key": "-----BEGIN PRIVATE KEY-----\nAAAA"}, "kafka.tls.certificate"),
        ({"ca": "/nowhere/ca.pem"}, "kafka.tls.ca"),
        ({"ca": "-----BEGIN PRIVATE KEY-----\nAAAA"}, "kafka.tls.ca"),
        ({"certificate": CERTIFICATE, "key": CERTIFICATE}, "kafka.tls.key"),
    ],
)
def test_a_wrong_pem_names_its_setting(tls, named):
    with pytest.raises(SettingsError, match=named.replace(".", r"\.")):
        client_config(settings_with(**tls))


def test_a_key_is_never_shown():
    with pytest.raises(SettingsError) as caught:
        client_config(settings_with(certificate=CERTIFICATE, key="c2VjcmV0IGtleQ=="))
    assert "c2VjcmV0" not in str(caught.value)


@pytest.mark.parametrize(
    ("tls", "reason", "named"),
    [
        ({}, "Disconnected: verify that security.protocol is correctly configured", "kafka.tls.ca is not set"),
        ({"ca": CERTIFICATE}, "SSL alert number 116: certificate required", "kafka.tls.certificate is not set"),
        ({"enabled": True}, "SSL handshake failed: certificate verify failed", "kafka.tls.ca is not set"),
        ({"ca": CERTIFICATE}, "SSL handshake failed: certificate verify failed", "kafka.tls.ca is not the one"),
        ({"ca": CERTIFICATE}, "SSL handshake failed: hostname mismatch", "kafka.tls.verify_hostname"),
        ({}, "Connection refused", "kafka.bootstrap is right"),
    ],
)
def test_a_refusal_names_the_setting_to_mend(tls, reason, named):
    assert named in str(explain(settings_with(**tls), reason))
