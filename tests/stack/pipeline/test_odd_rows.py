"""Rows that a sink cannot take: none stops a pipeline for good without a word of what would help."""

from __future__ import annotations

import secrets
from dataclasses import replace

import pytest
from tests.stack.pipeline.test_batches import counting

from shop import pipelines as shop
from tailrace import expect, postgres
from tailrace.errors import SinkError

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
