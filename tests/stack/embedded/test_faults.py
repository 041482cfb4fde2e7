from __future__ import annotations

import psycopg
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tailrace.embedded.stack import Stack
from tailrace.settings import Settings


def test_tls_listener_lets_in_only_who_has_a_certificate(stack, topic):
    name = topic()
    made = stack.kafka.certificates
    secure = {
        "bootstrap.servers": stack.kafka.tls_bootstrap,
        "security.protocol": "ssl",
        "ssl.ca.location": str(made.ca),
    }
    pair = {"ssl.certificate.location": str(made.certificate), "ssl.key.location": str(made.key)}
    producer = Producer({**secure, **pair})
    producer.produce(name, b"sealed")
    assert producer.flush(20) == 0
    consumer = Consumer({**secure, **pair, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([name])
    message = consumer.poll(20)
    consumer.close()
    assert message.value() == b"sealed"
    stranger = AdminClient({**secure, "log_level": 0})
    with pytest.raises(KafkaException):
        stranger.list_topics(timeout=3)


def test_a_killed_broker_comes_back_on_the_same_port_with_its_messages(tmp_path):
    """A stack of its own, beside the one that all other tests use: two homes run at the same time. Ready means that it
    serves all it has: so soon after a start it names itself as the leader of partitions that it does not lead yet."""
    tmp_path.chmod(0o755)
    external = {"postgres.url": "postgresql://nobody@127.0.0.1:1/none"}
    given = Settings.load(home=tmp_path / "second", overrides={**external, "embedded.kafka_heap": "256m"})
    with Stack(given) as second:
        before = second.kafka.bootstrap
        producer = Producer({"bootstrap.servers": before, "log_level": 2})
        admin = AdminClient({"bootstrap.servers": before, "log_level": 2})
        others = [NewTopic(f"other{number}", 4, 1) for number in range(60)]
        for made in admin.create_topics([NewTopic("kept", 1, 1), *others]).values():
            made.result()
        producer.produce("kept", b"1")
        assert producer.flush(20) == 0
        second.kafka.kill()
        second.kafka.start()
        assert second.kafka.bootstrap == before
        consumer = Consumer({"bootstrap.servers": before, "group.id": "g", "auto.offset.reset": "earliest"})
        for other in others:
            for part in range(other.num_partitions):
                assert consumer.get_watermark_offsets(TopicPartition(other.topic, part), timeout=10) == (0, 0)
        consumer.subscribe(["kept"])
        assert consumer.poll(30).value() == b"1"
        consumer.close()
    assert not (tmp_path / "second" / "endpoints.json").exists()


def test_a_killed_postgres_comes_back_with_its_rows(tmp_path):
    tmp_path.chmod(0o755)
    given = Settings.load(home=tmp_path / "third", overrides={"kafka.bootstrap": "127.0.0.1:1"})
    with Stack(given) as third:
        url = Settings.load(home=third.settings.home).postgres.url.get_secret_value()
        assert url == third.settings.postgres.url.get_secret_value()
        with psycopg.connect(url) as connection:
            connection.execute("CREATE TABLE survivor AS SELECT 7 AS n")
        third.postgres.kill()
        with pytest.raises(psycopg.OperationalError):
            psycopg.connect(url, connect_timeout=2)
        third.postgres.start()
        with psycopg.connect(url) as connection:
            assert connection.execute("SELECT n FROM survivor").fetchone() == (7,)
    # A stopped stack takes its addresses back.
    assert Settings.load(home=given.home).postgres.url is None
