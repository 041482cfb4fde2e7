"""Rows that a sink cannot take: none stops a pipeline for good without a word of what would help."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from tests.stack.pipeline.test_batches import counting

from shop import pipelines as shop
from tailrace import expect, kafka, log, pipeline, postgres
from tailrace.errors import SinkError
from tailrace.live.records import decode
from tailrace.settings import LiveTopicSettings

LONG = "/" + secrets.token_hex(3000)  # what an index would compress does not count as long


def test_a_key_too_long_for_an_index_is_explained_and_a_rule_mends_it(project):
    views = counting(project)
    project.send(project.event(1), project.event(2, url=LONG))
    with pytest.raises(SinkError) as told:
        project.run(views)
    assert f"public.{views.name}, key (window_start, url): index row size" in told.value.what
    assert 'expect("short_url", "octet_length(url) <= 2000")' in told.value.remedy
    assert project.query(f"SELECT * FROM {views.name}") == []
    mended = counting(project, quality=[expect("short_url", "octet_length(url) <= 2000")])
    project.run(mended)
    assert project.query(f"SELECT url, views FROM {views.name}") == [("/", 1)]
    (line,) = project.lines(views.name)
    assert (line["rows_in"], line["rows_out"], line["reasons"]) == (2, 1, {"short_url": 1})


@pytest.mark.parametrize("declared", [shop.page_views, shop.visitors_now], ids=lambda one: one.name)
def test_no_visitor_stops_the_shop_with_a_long_address(project, declared):
    """The shop's own declaration over another topic, with what its visitors may choose: longest and too long."""
    (key,) = [sink.key for sink in declared.sinks if sink.kind == "postgres"]
    name = f"{project.name}_{declared.name}"
    source = replace(declared.source, topic=project.source)
    views = replace(declared, name=name, source=source, sinks=(postgres(name, key=key),))
    longest = "/products/" + secrets.token_hex(995)
    hosts = {"longest": secrets.token_hex(150), "too_long": secrets.token_hex(2000)}
    project.send(
        project.event(1, url=f"{longest}?{secrets.token_hex(3000)}", host=hosts["longest"]),
        project.event(2, url=f"{longest}x"),
        project.event(2, url=f"{longest}{secrets.token_hex(1000)}"),
        project.event(3, url="/products/" + "\N{LATIN SMALL LETTER E WITH ACUTE}" * 1000),
    )
    if "host" in key:
        project.send(project.event(4, host=hosts["too_long"]))
    project.run(views)
    assert {path for (path,) in project.query(f"SELECT path FROM {name}")} - {"*"} == {longest}
    (line,) = project.lines(name)
    assert line["reasons"] == {"short_path": 3} | ({"short_host": 1} if "host" in key else {})


def by_host(project, kind, **declared):
    def function(events):
        return events.select("host", "url")

    function.__name__ = f"{project.name}_{kind}"
    sinks = [kafka(function.__name__, key="host", **declared)]
    return pipeline(source=log(project.source), sinks=sinks)(function)


def keys(project, topic):
    return sorted((key for key, _, _ in project.records(topic)), key=repr)


@pytest.mark.parametrize("mode", ["micro-batch", "realtime=5s"])
def test_a_plain_key_that_is_null_is_a_key_of_its_own_in_a_compacted_topic(project, mode):
    views = by_host(project, "compacted")
    project.send(project.event(1), project.event(2, host=""), project.event(3, host=None))
    with project.running(views, mode) as read:
        read(3)
    found = {value: decode(key, value, [], LiveTopicSettings())[0].key for key, value, _ in project.records(views.name)}
    assert keys(project, views.name) == [b"", b"[null]", b"shop.test"]
    assert sorted(found.values(), key=repr) == [("",), ("shop.test",), (None,)], "the live server tells them apart"


def test_a_plain_key_stays_null_where_the_topic_is_not_compacted(project):
    views = by_host(project, "kept", compacted=False)
    project.send(project.event(1), project.event(2, host=None))
    project.run(views)
    assert keys(project, views.name) == [None, b"shop.test"]


@pytest.mark.parametrize("mode", ["micro-batch", "realtime=5s"])
def test_settings_may_declare_the_topic_compacted_too(project, mode):
    views = by_host(project, "declared", compacted=False)
    project.settings = project.settings.derive({f"topics.{views.name}": {"compacted": True}})
    project.send(project.event(1), project.event(2, host=None))
    with project.running(views, mode) as read:
        read(2)
    assert keys(project, views.name) == [b"[null]", b"shop.test"]
