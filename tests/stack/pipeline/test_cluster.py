"""Spark's executor in a process of its own, as on a cluster: what a pipeline needs there comes through Spark."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from ipaddress import ip_network
from pathlib import Path
from subprocess import PIPE

import pyspark
from tests.spark.pipeline.mmdb import write

PROGRAM = """
import os, sys
from pyspark.sql import functions as F
from tailrace import enrich, expect, iceberg, kafka, log, pipeline, postgres
from tailrace.embedded.spark import start_session
from tailrace.pipeline.modes import Mode
from tailrace.pipeline.run import Runner
from tailrace.settings import Settings

NAME, SOURCE = os.environ["NAME"], os.environ["SOURCE"]


def function(events):
    agent = enrich.user_agent("user_agent")
    minute = F.window("event_time", "1 minute").start.alias("minute")
    place = os.environ["DATABASE"]
    same = enrich.country("ip", database=place)
    # The executor of this test sees the driver's files; a file that is at no such place it has through Spark only.
    brought = F.call_function("tailrace_country", "ip", F.lit("/nowhere/" + os.path.basename(place)))
    events = events.withColumn("country", brought).where(brought.eqNullSafe(same))
    counted = events.groupBy(minute, "country", agent.browser.alias("browser"))
    return counted.agg(F.count("*").alias("views"))


function.__name__ = NAME
key = ["minute", "country", "browser"]
views = pipeline(
    source=log(SOURCE, watermark="1 minute", unique="event_id"),
    quality=[expect("has_host", "host IS NOT NULL")],
    sinks=[
        kafka(NAME, key=key), postgres(f"public.{NAME}", key=key), iceberg(f"modes.{NAME}", mode="upsert", key=key)
    ],
)(function)
settings = Settings.load()
spark = start_session(settings)
for line in sys.stdin:
    runner = Runner(spark, settings, [(views, Mode.parse("hourly"))], once=True)
    runner.start()
    runner.workers[0].join(100)
    runner.stop()
    runner.wait()
    print(runner.workers[0].problem, flush=True)
spark.stop()
"""


def said(driver):
    driver.stdin.write("run\n")
    driver.stdin.flush()
    return driver.stdout.readline().strip()


def test_a_pipeline_runs_on_a_cluster(project, tmp_path):
    database = tmp_path / "countries of tests.mmdb"
    write(database, {ip_network("198.51.100.0/24"): {"country": {"iso_code": "AT"}}})
    settings, name = project.settings, project.name
    environ = {
        **os.environ,
        "NAME": name,
        "SOURCE": project.source,
        "DATABASE": str(database),
        "TAILRACE_HOME": str(tmp_path / "home"),
        "TAILRACE_CACHE": str(settings.cache),
        "TAILRACE_KAFKA__BOOTSTRAP": settings.kafka.bootstrap,
        "TAILRACE_POSTGRES__URL": settings.postgres.url.get_secret_value(),
        "TAILRACE_ICEBERG__URI": settings.iceberg.uri.get_secret_value(),
        "TAILRACE_ICEBERG__WAREHOUSE": settings.iceberg.warehouse,
        "TAILRACE_SPARK__MASTER": "local-cluster[1,2,1024]",
        "TAILRACE_SPARK__DRIVER_MEMORY": "1g",
        "TAILRACE_SPARK__SHUFFLE_PARTITIONS": "1",
    }

    known = {
        "ip": "198.51.100.7",
        "user_agent": "Mozilla/5.0 (X11; Linux x86_64; rv:140.0) Gecko/20100101 Firefox/140.0",
    }
    first = project.event(1, **known)
    command = [sys.executable, "-W", "ignore", "-c", PROGRAM]
    with subprocess.Popen(command, env=environ, cwd=tmp_path, text=True, stdin=PIPE, stdout=PIPE) as driver:
        try:
            project.send(first, first, project.event(2, **known), project.event(3, ip="192.0.2.1"), b"junk")
            assert said(driver) == "None"
            # The executor has the stores of ids still in hand when the driver looks into them.
            project.send(first, project.event(4, **known))
            assert said(driver) == "None"
            driver.stdin.close()
            assert driver.wait(60) == 0
        finally:
            driver.kill()
            shutil.rmtree(Path(pyspark.__file__).parent / "work", ignore_errors=True)  # Spark's executors lived there
    rows = {row["country"]: (row["browser"], row["views"]) for row in project.picture(name).values()}
    assert rows["AT"] == ("Firefox", 3) and rows[None][1] == 1
    assert set(project.query(f"SELECT country, views FROM public.{name}")) == {("AT", 3), (None, 1)}
    table = project.spark.table(f"{settings.iceberg.catalog}.modes.{name}").collect()
    assert {(row.country, row.views) for row in table} == {("AT", 3), (None, 1)}
    lines = project.lines(name)
    assert [(line["rows_in"], line["duplicate"], line["quarantined"], line["balance"]) for line in lines] == [
        (5, 1, 1, 0),
        (2, 1, 0, 0),
    ]
