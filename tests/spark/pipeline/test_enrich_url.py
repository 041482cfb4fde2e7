"""The parts of URLs, against urllib.parse."""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from pyspark.sql import SparkSession

from tailrace import enrich

WORDS = [
    "a",
    "products",
    "mug",
    "größe",
    "日本",
    "x y",
    "%41",
    "%zz",
    "%",
    "%e2%82",
    "%C3%BC",
    "%00",
    "+",
    "a+b",
    "~",
    ";",
    "=",
    "%26",
    "100%25",
    ":",
    "@",
    "",
    ".",
    "..",
]
TAGS = [
    "utm_source",
    "utm_medium",
    "utm_campaign",
    "utm_term",
    "utm_content",
    "%75tm_source",
    "utm_other",
    "q",
    "p",
    "text",
    "",
    "ref",
]
HOSTS = [
    "",
    "",
    "",
    "https://shop.example",
    "http://user@shop.example:8080",
    "https://[2001:db8::1]:8443",
    "HTTP://EXAMPLE",
]


def urls(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    made = []
    for _ in range(count):
        path = "".join("/" + rng.choice(WORDS[:22]) for _ in range(rng.randrange(4)))
        pairs = [
            rng.choice(TAGS) + rng.choice(["=", "=", "=", ""]) + rng.choice(WORDS) for _ in range(rng.randrange(5))
        ]
        host = rng.choice(HOSTS)
        query = rng.choice(["", "?", "?", "?"]) and "?" + rng.choice(["&", "&", "&&"]).join(pairs)
        fragment = rng.choice(["", "", "#", "#top?x=1&y", "#a=b"])
        url = host + ("/" + path.lstrip("/") if not host else path) + query + fragment
        made.append(url)
    return [url for url in made if not url.startswith("//")]


def ask(spark: SparkSession, texts: list[Any], *columns: Any) -> list[Any]:
    return spark.createDataFrame([(text,) for text in texts], "url string").coalesce(1).select(*columns).collect()


def test_path_query_and_campaign_are_urllibs(spark: SparkSession) -> None:
    given = urls(1, 5_000)
    rows = ask(spark, given, enrich.path("url"), enrich.query("url"), enrich.campaign("url"))
    tagged = 0
    for url, (path, query, campaign) in zip(given, rows, strict=True):
        parts = urlsplit(url)
        assert path == (parts.path or "/"), url
        pairs = dict(parse_qsl(parts.query, keep_blank_values=True))
        assert query == pairs, url
        tags = tuple(pairs.get(f"utm_{name}") or None for name in ("source", "medium", "campaign", "term", "content"))
        assert (tuple(campaign) if campaign else None) == (tags if any(tags) else None), url
        tagged += any(tags)
    assert tagged > 500


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("//evil.example/x?y", "//evil.example/x"),
        ("", "/"),
        ("?a=1", "/"),
        ("/a;b=c", "/a;b=c"),
        ("*", "*"),
        ("/a:b", "/a:b"),
    ],
)
def test_request_targets_are_paths_whatever_they_look_like(spark: SparkSession, url: str, path: str) -> None:
    assert ask(spark, [url], enrich.path("url")) == [(path,)]


REFERRERS = {
    "https://www.google.com/search?q=blue+mug&hl=en": "blue mug",
    "https://www.google.co.uk/search?hl=en&q=caf%C3%A9": "café",
    "https://google.de/?q=": None,
    "https://www.google.com/": None,
    "https://www.bing.com/search?q=%E6%97%A5%E6%9C%AC": "日本",
    "https://duckduckgo.com/?q=mugs&t=h_": "mugs",
    "https://search.yahoo.com/search?p=mug": "mug",
    "https://yandex.ru/search/?text=%D0%BA%D1%80%D1%83%D0%B6%D0%BA%D0%B0": "кружка",
    "https://www.baidu.com/s?wd=mug": "mug",
    "https://search.brave.com/search?q=mug&source=web": "mug",
    "https://www.startpage.com/do/search?query=mug": "mug",
    "https://user@www.google.com:443/search?q=mug#q=other": "mug",
    "https://google.evil.example/search?q=mug": None,
    "https://notgoogle.com/search?q=mug": None,
    "https://shop.example/?q=mug": None,
    "/search?q=mug": None,
    "google.com/search?q=mug": None,
    "": None,
    "\u0000 https://": None,
}


def test_search_terms_of_the_engines_that_tell_them(spark: SparkSession) -> None:
    rows = ask(spark, [*REFERRERS, None], enrich.search_term("url"))
    assert [row[0] for row in rows] == [*REFERRERS.values(), None]


def test_null_is_null(spark: SparkSession) -> None:
    columns = [
        make("url")
        for make in (enrich.path, enrich.query, enrich.campaign, enrich.search_term, enrich.user_agent, enrich.country)
    ]
    assert ask(spark, [None], *columns) == [(None,) * 6]
