"""The shop's pipelines: what its visitors do, back on its pages within a second, and in its tables for good."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from tailrace import dimension, enrich, expect, iceberg, kafka, log, pipeline, postgres

events = log("events", watermark="15 seconds", unique="event_id")
has_host = expect("has_host", "host IS NOT NULL")
# Visitors choose both, and an index of Postgres takes some 2,700 bytes of a key.
short_host = expect("short_host", "octet_length(host) <= 300")
short_path = expect("short_path", "octet_length(substring_index(url, '?', 1)) <= 2000")
countries = dimension(postgres("shop.countries"), refresh="3 hours")


@pipeline(
    source=log("events", unique="event_id"),
    quality=[has_host],
    sinks=[kafka("events.enriched", key="visitor_id", compacted=False)],
)
def enriched(events: DataFrame) -> DataFrame:
    """Every event with path, query, country, browser and campaign."""
    return with_enrichment(events).drop("headers", "extra")


@pipeline(
    source=log("events", unique="event_id"),
    quality=[has_host],
    sinks=[iceberg("shop.events", partition_by="days(event_time)")],
)
def archive(events: DataFrame) -> DataFrame:
    """The log itself, every event once: the history that backfills and repairs read."""
    return with_enrichment(events)


@pipeline(
    source=events,
    quality=[has_host, short_host, short_path],
    sinks=[
        kafka("page_views", key=["window_start", "host", "path"]),
        postgres("page_views", key=["window_start", "host", "path"]),
    ],
)
def page_views(events: DataFrame) -> DataFrame:
    """Views per page and minute."""
    pages = events.withColumn("path", enrich.path("url"))
    per_page = pages.groupBy(F.window("event_time", "1 minute"), "host", "path")
    counted = per_page.agg(F.count("*").alias("views"), F.max("event_time").alias("last_event_time"))
    return counted.select(F.col("window.start").alias("window_start"), "host", "path", "views", "last_event_time")


@pipeline(
    source=events,
    quality=[has_host, short_path],
    sinks=[
        kafka("visitors_now", key=["path", "window_end"]),
        postgres("visitors_now", key=["path", "window_end"]),
    ],
)
def visitors_now(events: DataFrame) -> DataFrame:
    """Visitors of the last five minutes, for each product page and for the whole site ("*")."""
    path = enrich.path("url")
    product = F.when(path.like("/products/_%"), path)
    pages = events.where("method = 'GET'").select("event_time", "visitor_id", product.alias("product"))
    places = F.filter(F.array(F.lit("*"), F.col("product")), lambda place: place.isNotNull())
    seen = pages.select("event_time", "visitor_id", F.explode(places).alias("path"))
    active = seen.groupBy(F.window("event_time", "5 minutes", "10 seconds"), "path")
    # A sketch is one column of state; approx_count_distinct would be hundreds, with code generated for each every time.
    # Exact up to some 1,500 visitors, within one percent above.
    visitors = F.hll_sketch_estimate(F.hll_sketch_agg("visitor_id", 14))
    counted = active.agg(visitors.alias("visitors"), F.max("event_time").alias("last_event_time"))
    return counted.select("path", F.col("window.end").alias("window_end"), "visitors", "last_event_time")


@pipeline(
    source=events,
    quality=[has_host],
    dimensions=[countries],
    sinks=[
        kafka("signups", key=["window_start", "region"]),
        iceberg("shop.signups", mode="upsert", key=["window_start", "region"]),
    ],
)
def signups(events: DataFrame) -> DataFrame:
    """Sign-ups per region and minute. A sign-up is a POST that the shop answered with a redirect."""
    made = events.where("method = 'POST' AND status = 303").where(enrich.path("url") == "/signup")
    located = made.withColumn("country", enrich.country("ip"))
    known = located.join(F.broadcast(countries()), on="country", how="left")
    per_region = known.withColumn("region", F.coalesce("region", F.lit("unknown"))).groupBy(
        F.window("event_time", "1 minute"), "region"
    )
    counted = per_region.agg(F.count("*").alias("signups"), F.max("event_time").alias("last_event_time"))
    return counted.select(F.col("window.start").alias("window_start"), "region", "signups", "last_event_time")


@pipeline(
    source=events,
    quality=[has_host],
    sinks=[kafka("audience", key=["window_start", "country", "browser", "is_bot"])],
)
def audience(events: DataFrame) -> DataFrame:
    """Who comes: views per country, browser and minute, people and bots apart."""
    agent = enrich.user_agent("user_agent")
    told = events.select(
        "event_time",
        enrich.country("ip").alias("country"),
        agent["browser"].alias("browser"),
        agent["is_bot"].alias("is_bot"),
    )
    counted = told.groupBy(F.window("event_time", "1 minute"), "country", "browser", "is_bot").agg(
        F.count("*").alias("views"), F.max("event_time").alias("last_event_time")
    )
    return counted.select(
        F.col("window.start").alias("window_start"), "country", "browser", "is_bot", "views", "last_event_time"
    )


def with_enrichment(events: DataFrame) -> DataFrame:
    """Column functions only: they run in the JVM, in every mode."""
    agent: Column = F.col("agent")
    parts = ("browser", "browser_version", "os", "device", "is_bot")
    return (
        events.withColumn("path", enrich.path("url"))
        .withColumn("query", enrich.query("url"))
        .withColumn("country", enrich.country("ip"))
        .withColumn("agent", enrich.user_agent("user_agent"))
        .withColumns({part: agent[part] for part in parts})
        .withColumn("campaign", enrich.campaign("url"))
        .drop("agent")
    )
