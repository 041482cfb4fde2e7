from __future__ import annotations

import pytest

from tailrace.errors import ServiceError
from tailrace.log.producer import check_broker, producer


def with_tls(stack, **tls: object):
    values = {"kafka.bootstrap": stack.kafka.tls_bootstrap, **{f"kafka.tls.{name}": text for name, text in tls.items()}}
    return stack.settings.derive(values)


def test_a_client_certificate_opens_the_tls_listener(stack, topic):
    made = stack.kafka.certificates
    for form in (str, lambda path: path.read_text()):
        settings = with_tls(stack, ca=form(made.ca), certificate=form(made.certificate), key=form(made.key))
        check_broker(settings, 20)
    sender = producer(settings)
    sender.produce(topic(), b"over TLS")
    assert sender.flush(20) == 0


def test_without_one_the_error_names_the_missing_setting(stack):
    made = stack.kafka.certificates
    with pytest.raises(ServiceError, match=r"kafka\.tls\.certificate is not set.*TAILRACE_KAFKA__TLS__CERTIFICATE"):
        check_broker(with_tls(stack, ca=str(made.ca)), 10)
    with pytest.raises(ServiceError, match=r"kafka\.tls\.ca is not set.*TAILRACE_KAFKA__TLS__CA"):
        check_broker(with_tls(stack, enabled=True), 10)
    with pytest.raises(ServiceError, match=r"kafka\.tls\.ca is not set"):
        check_broker(with_tls(stack), 10)


def test_a_broker_that_is_not_there_names_its_address(settings):
    with pytest.raises(ServiceError, match=r"127\.0\.0\.1:1\b.*kafka\.bootstrap"):
        check_broker(settings.derive({"kafka.bootstrap": "127.0.0.1:1"}), 1.5)
