from __future__ import annotations

import psycopg
from confluent_kafka import Consumer, Producer


def test_kafka_round_trip(settings, topic):
    name = topic(partitions=2)
    producer = Producer({"bootstrap.servers": settings.kafka.bootstrap})
    producer.produce(name, b"value", b"key")
    assert producer.flush(10) == 0
    consumer = Consumer(
        {"bootstrap.servers": settings.kafka.bootstrap, "group.id": name, "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    message = consumer.poll(20)
    consumer.close()
    assert (message.key(), message.value()) == (b"key", b"value")


def test_postgres_allows_logical_replication(settings):
    with psycopg.connect(settings.postgres.url.get_secret_value()) as connection:
        assert connection.execute("SHOW wal_level").fetchone() == ("logical",)


def test_iceberg_is_shared_by_spark_and_pyiceberg(settings, spark):
    from pyiceberg.catalog.sql import SqlCatalog

    spark.sql("CREATE NAMESPACE IF NOT EXISTS tailrace.shared")
    spark.sql("CREATE TABLE tailrace.shared.t (n BIGINT) USING iceberg")
    spark.sql("INSERT INTO tailrace.shared.t VALUES (1), (2)")
    uri = settings.iceberg.uri.get_secret_value().replace("postgresql://", "postgresql+psycopg://")
    warehouse = settings.iceberg.warehouse
    with SqlCatalog("tailrace", uri=uri, warehouse=warehouse, init_catalog_tables="false") as catalog:
        table = catalog.load_table("shared.t")
        assert sorted(table.scan().to_arrow()["n"].to_pylist()) == [1, 2]
        table.append(table.scan().to_arrow())
        assert spark.table("tailrace.shared.t").count() == 4
        catalog.create_table("shared.u", schema=table.schema())
        assert {row.tableName for row in spark.sql("SHOW TABLES IN tailrace.shared").collect()} == {"t", "u"}
        assert ("shared", "u") in catalog.list_tables("shared")
