"""What is wrong with a pipeline is said before anything starts, in a sentence that names it."""

from __future__ import annotations

import pytest

from tailrace import dimension, enrich, expect, iceberg, kafka, log, pipeline, postgres
from tailrace.errors import CheckpointError, DefinitionError, ModeError, ServiceError
from tailrace.pipeline import checkpoint
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.plan import check_all, plan
from tailrace.pipeline.queries import prepare as check

SOURCE = log("events", watermark="15 seconds", unique="event_id")


@pytest.fixture
def local(settings, tmp_path):
    return settings.derive({"home": str(tmp_path)})


def declare(function, *, quality=(), sinks=None, source=SOURCE, name="tested"):
    function.__name__ = name
    return pipeline(source=source, quality=list(quality), sinks=sinks or [kafka("t", key=["event_id"])])(function)


def partitioned(transform):
    return declare(lambda events: events, sinks=[iceberg("t", partition_by=transform)])


def beside(table):
    other = dimension(table)

    def tested(events):
        return events.join(other(), "host", "left")

    return pipeline(source=SOURCE, dimensions=[other], sinks=[kafka("t", key=["event_id"])])(tested)


def counted(events):
    from pyspark.sql import functions as F

    per_minute = events.groupBy(F.window("event_time", "1 minute"), enrich.path("url").alias("path"))
    return per_minute.agg(F.count("*").alias("views")).select(F.col("window.start").alias("start"), "path", "views")


def misspelt(events):
    from pyspark.sql import functions as F

    return events.groupBy("host").agg(F.cuont("*"))


def unnamed(events):
    return events.where(no_such_name)  # noqa: F821


def recounted(events):
    from pyspark.sql import functions as F

    per_minute = events.groupBy(F.window("event_time", "5 minutes"), enrich.path("url").alias("path"))
    return per_minute.agg(F.count("*").alias("views")).select(F.col("window.start").alias("start"), "path", "views")


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda: declare(lambda events: 42), "'tested' returned int, not a DataFrame"),
        (lambda: declare(lambda events: events.select("nonsense")), "'tested': the function .*nonsense"),
        (lambda: declare(lambda events: events, quality=[expect("r", "nonsense > 1")]), "'tested': a rule .*nonsense"),
        (
            lambda: declare(lambda events: events.select("url")),
            "key column 'event_id' of sink kafka:t is not in its output",
        ),
        (lambda: declare(lambda events: events.select("url", "url")), "two columns named 'url'"),
        (
            lambda: declare(misspelt),
            r"'tested': the function raised AttributeError in line \d+ of .*test_plan.py.*cuont",
        ),
        (lambda: declare(unnamed), "'tested': the function raised NameError .*no_such_name"),
        (lambda: declare(lambda events: events, quality=[expect("r", "host >")]), "'tested': a rule .*Syntax error"),
        (lambda: partitioned("days(evnt_time)"), "iceberg:t cannot be partitioned by .*Cannot find .*evnt_time"),
        (lambda: partitioned("dayz(event_time)"), "cannot be partitioned by .*dayz"),
        (lambda: partitioned("days(url)"), "cannot be partitioned by .*Invalid source type string"),
        (lambda: partitioned("days("), "cannot be partitioned by .*Syntax error"),
    ],
)
def test_a_function_that_does_not_fit(spark, local, wrong, says):
    with pytest.raises(DefinitionError, match=says) as told:
        plan(spark, local, wrong())
    assert told.value.remedy
    with pytest.raises(DefinitionError, match=says):
        check_all(spark, local, [(wrong(), Mode.parse("micro-batch"))])


@pytest.mark.parametrize("table", [postgres("public.no_such"), postgres("no.such"), iceberg("no.such")])
def test_a_side_input_without_its_table_is_said_and_waited_for(spark, local, table):
    with pytest.raises(ServiceError, match=f"'tested': Dimension '{table.target}' has no table to read"):
        plan(spark, local, beside(table))
    assert check_all(spark, local, [(beside(table), Mode.parse("micro-batch"))]) == {}


def test_partitions_that_fit(spark, local):
    for transform in ("url", "days(event_time)", "bucket(16, visitor_id)", "truncate(url, 4)"):
        assert plan(spark, local, partitioned(transform)).sinks == ["iceberg:t"]


def test_a_service_that_is_away_is_not_the_pipelines_fault(spark, local):
    away = local.derive({"postgres.url": "postgresql://nobody@127.0.0.1:1/none"})
    with pytest.raises(ServiceError, match=r"'tested': Postgres does not answer at 127\.0\.0\.1:1"):
        plan(spark, away, beside(postgres("public.no_such")))
    assert check_all(spark, away, [(beside(postgres("public.no_such")), Mode.parse("micro-batch"))]) == {}

    def asks(events):
        address = "jdbc:postgresql://127.0.0.1:1/none"
        return events.join(spark.read.jdbc(address, "t", properties={"driver": "org.postgresql.Driver"}), "host")

    assert check_all(spark, local, [(declare(asks), Mode.parse("micro-batch"))]) == {}


def test_a_plan_tells_all(spark, local):
    views = declare(counted, sinks=[kafka("v", key=["start", "path"]), postgres("v", key=["start", "path"])])
    told = plan(spark, local, views)
    assert told.columns_out == ["start timestamp", "path string", "views bigint"]
    assert told.columns_in[:2] == ["event_id string", "event_time timestamp"]
    assert told.start == "earliest"
    assert told.output_mode == "update"
    assert len(told.state) == 1 and "count" in told.state[0]
    assert told.modes["realtime"].startswith("real time writes to exactly one Kafka topic")
    assert {mode for mode, reason in told.modes.items() if not reason} == {"micro-batch", "hourly", "daily", "batch"}


def test_modes_that_cannot_run_say_why(spark, local):
    from pyspark.sql import functions as F

    state = declare(counted, sinks=[kafka("v", key=["start", "path"])])
    with pytest.raises(
        ModeError, match=r"'tested' cannot run as realtime: real time keeps no state, and it has Aggregate"
    ):
        check(spark, local, state, Mode.parse("realtime"))
    python = declare(lambda events: events.select("event_id", F.udf(lambda url: url)("url").alias("u")))
    with pytest.raises(ModeError, match="no Python functions"):
        check(spark, local, python, Mode.parse("realtime"))
    exploded = declare(lambda events: events.select("event_id", F.explode(F.split("url", "/")).alias("part")))
    assert "cannot pass Generate" in plan(spark, local, exploded).modes["realtime"]
    with pytest.raises(ModeError, match="cannot run as realtime: quarantined rows cannot pass Generate"):
        check(spark, local, exploded, Mode.parse("realtime"))
    plain = declare(lambda events: events.where("status < 500").select("event_id", "url"))
    check(spark, local, plain, Mode.parse("realtime"))
    assert plan(spark, local, plain).modes == dict.fromkeys(("realtime", "micro-batch", "hourly", "daily", "batch"), "")


def test_functions_without_a_column_that_could_be_late(spark, local):
    visitors = declare(lambda events: events.select("visitor_id").distinct(), sinks=[kafka("v", key=["visitor_id"])])
    assert "visitor_id string" in plan(spark, local, visitors).columns_out
    moved = declare(
        lambda events: events.withColumnRenamed("event_time", "at").dropDuplicates(["visitor_id", "at"]),
        sinks=[kafka("v", key=["visitor_id"])],
    )
    assert "at timestamp" in plan(spark, local, moved).columns_out


def test_a_side_input_may_be_counted_too(spark, local):
    from pyspark.sql import functions as F

    hosts = spark.createDataFrame([("a", 1), ("a", 2)], "host string, n int")

    def joined(events):
        sizes = hosts.groupBy("host").agg(F.max("n").alias("size"))
        per_minute = events.groupBy(F.window("event_time", "1 minute"), "host").agg(F.count("*").alias("views"))
        return per_minute.join(sizes, "host", "left").select("window.start", "host", "views", "size")

    sized = declare(joined, sinks=[kafka("v", key=["start", "host"])])
    assert len(plan(spark, local, sized).state) == 1


def test_names_with_dots_and_keys_without_a_form(spark, local):
    from pyspark.sql import functions as F

    from tailrace.pipeline.records import record

    dotted = declare(lambda events: events.select(F.col("event_id").alias("a.b"), "url"), sinks=[kafka("v", key="a.b")])
    check(spark, local, dotted, Mode.parse("realtime"))
    frame = spark.createDataFrame([(1, "x")], "`a.b` int, `c`` d` string")
    for plain, key in ((True, "1"), (False, "[1]")):
        (row,) = frame.select(*record(frame.columns, ["a.b"], plain=plain)).collect()
        assert (row["key"], row["value"]) == (key, '{"a.b":1,"c` d":"x"}')
    spans = declare(
        lambda events: events.select((F.col("event_time") - F.lit("2026-01-01").cast("timestamp")).alias("age")),
        sinks=[kafka("v", key=["age"])],
    )
    with pytest.raises(DefinitionError, match="the key column 'age' of sink kafka:v is an interval"):
        plan(spark, local, spans)


def test_a_checkpoint_of_another_version_is_refused_and_kept(spark, local):
    sinks = [kafka("v", key=["start", "path"])]
    first = declare(counted, sinks=sinks)
    check(spark, local, first, Mode.parse("micro-batch"))
    from tailrace.pipeline.queries import compile_stream

    shape = checkpoint.fingerprint(first, compile_stream(spark, local, first).result, local.spark.shuffle_partitions)
    claimed = checkpoint.claim(local, "tested", shape)
    check(spark, local, first, Mode.parse("micro-batch"))
    second = declare(recounted, sinks=sinks)
    with pytest.raises(CheckpointError, match=r"checkpoint of pipeline 'tested' .*state was"):
        check(spark, local, second, Mode.parse("micro-batch"))
    assert (claimed.path / checkpoint.CARD).exists()
    aside = checkpoint.reset(local, "tested")
    assert aside is not None and aside.exists()
    check(spark, local, second, Mode.parse("micro-batch"))
    renewed = checkpoint.claim(local, "tested", shape)
    assert renewed.epoch != claimed.epoch
    assert renewed.revision(0) >= claimed.revision(0)
