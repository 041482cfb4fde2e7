"""User agents, against ua-parser with the very patterns that are in the kernel's jar."""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
import ua_parser
from pyspark.sql import SparkSession
from ua_parser.loaders import load_json

from tailrace import enrich

PLATFORMS = [
    "Windows NT 10.0; Win64; x64",
    "Windows NT 6.1; WOW64",
    "Macintosh; Intel Mac OS X 10_15_7",
    "X11; Linux x86_64",
    "X11; CrOS x86_64 14541.0.0",
    "Linux; Android 14; Pixel 8",
    "Linux; Android 13; SM-G991B",
    "Linux; Android 10; K",
    "iPhone; CPU iPhone OS 17_1 like Mac OS X",
    "iPad; CPU OS 16_6 like Mac OS X",
    "X11; Ubuntu; Linux x86_64",
    "Linux; U; Android 9; en-us; Redmi Note 8",
    "PlayStation 5 3.11",
    "X11; FreeBSD amd64",
]
ENGINES = [
    "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.{}.{} Safari/537.36",
    "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{}.0.{}.{} Mobile Safari/537.36",
    "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{0}.0.0.0 Safari/537.36 Edg/{0}.0.{1}.{2}",
    "Gecko/20100101 Firefox/{}.{}",
    "AppleWebKit/605.1.15 (KHTML, like Gecko) Version/{}.{} Mobile/15E148 Safari/604.1",
    "AppleWebKit/605.1.15 (KHTML, like Gecko) CriOS/{}.0.{}.{} Mobile/15E148 Safari/604.1",
    "AppleWebKit/537.36 (KHTML, like Gecko) Chrome/{0}.0.0.0 Safari/537.36 OPR/{0}.0.{1}.{2}",
    "AppleWebKit/537.36 (KHTML, like Gecko) SamsungBrowser/{}.{} Chrome/115.0.0.0 Mobile Safari/537.36",
    "Trident/7.0; rv:{}.{}) like Gecko",
    "AppleWebKit/537.36 (KHTML, like Gecko) HeadlessChrome/{}.0.{}.{} Safari/537.36",
]
ROBOTS = [
    "Mozilla/5.0 (compatible; Googlebot/2.1; +http://www.google.com/bot.html)",
    "Mozilla/5.0 (compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)",
    "Mozilla/5.0 AppleWebKit/537.36 (KHTML, like Gecko; compatible; GPTBot/1.2; +https://openai.com/gptbot)",
    "facebookexternalhit/1.1",
    "Mozilla/5.0 (compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)",
    "curl/8.4.0",
    "python-requests/2.31.0",
    "Go-http-client/2.0",
    "Wget/1.21.4",
    "Mozilla/5.0 (compatible; SomeNewCrawler/1.0)",
    "Scrapy/2.11 (+https://scrapy.org)",
    "axios/1.6.2",
    "node-fetch/1.0",
    "Slurp",
    "okhttp/4.12.0",
]
PEOPLE = [
    "Mozilla/5.0 (Linux; Android 10; CUBOT X30) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/120.0.0.0 Safari/537.36",
    "Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:121.0) Gecko/20100101 Firefox/121.0",
]


def agents(seed: int, count: int) -> list[str]:
    rng = random.Random(seed)
    made = [*ROBOTS, *PEOPLE, "", " ", "-", "Mozilla", "ünï/1.0", "Mozilla/5.0 (" + ";" * 300]
    for _ in range(count):
        numbers = [rng.randrange(1, 130), rng.randrange(6000), rng.randrange(200)]
        text = f"Mozilla/5.0 ({rng.choice(PLATFORMS)}) {rng.choice(ENGINES).format(*numbers)}"
        if rng.random() < 0.1:
            cut = rng.randrange(len(text))
            text = text[:cut] + rng.choice(["", "bot", " ", "é"]) + text[cut + rng.randrange(10) :]
        made.append(text)
    return made


def like(rng: random.Random, pattern: str) -> str:
    """A text that the pattern may well match: one branch of each choice, something for each class and repeat."""
    text = re.sub(r"\(\?[:=!]", "(", pattern)
    text = re.sub(r"\(([^()|]*\|[^()]*)\)", lambda group: rng.choice(group[1].split("|")), text)
    text = re.sub(r"\[[^\]]*\][*+?]?", lambda _: rng.choice(["", "a", "1", "-"]), text)
    for escape, plain in ((r"\d+", "12"), (r"\d", "3"), (r"\s", " "), (r"\b", ""), ("\\", "")):
        text = text.replace(escape, plain)
    text = re.sub(r"\.\{[\d,]*\}\??|\.[*+]\??", " ", text)
    text = re.sub(r"[\^$()?+*|{}]", "", text)
    android = f"Mozilla/5.0 (Linux; Android 9; {text}) AppleWebKit/537.36 Chrome/99.0.1.2"
    return rng.choice([text, text.lower(), text.upper(), android, f"{text} Build/X", f"Mozilla/5.0 ({text})"])


@pytest.fixture(scope="module")
def same_patterns(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """ua-parser over the patterns of the uap-java jar, which the JVM turns from YAML to JSON."""
    jvm: Any = spark._jvm
    options = jvm.org.yaml.snakeyaml.LoaderOptions()
    options.setCodePointLimit(10_000_000)
    stream = jvm.ua_parser.Parser().getClass().getResourceAsStream("/ua_parser/regexes.yaml")
    patterns = jvm.org.yaml.snakeyaml.Yaml(options).load(stream)
    file: Path = tmp_path_factory.mktemp("patterns") / "regexes.json"
    file.write_text(jvm.com.fasterxml.jackson.databind.ObjectMapper().writeValueAsString(patterns), encoding="utf-8")
    matchers = load_json(file)
    texts = [entry["regex"] for entries in json.loads(file.read_text(encoding="utf-8")).values() for entry in entries]
    return (
        texts,
        ua_parser.Parser(ua_parser.RegexResolver(matchers)),
        ua_parser.Parser(ua_parser.BasicResolver(matchers)),
    )


def expected(parser: Any, text: str) -> tuple[str | None, ...]:
    result = parser.parse(text).with_defaults()
    agent = result.user_agent
    numbers = [agent.major, agent.minor, agent.patch]
    known = numbers[: numbers.index(None)] if None in numbers else numbers
    return agent.family, ".".join(known) or None, result.os.family, result.device.family


def test_equal_to_ua_parser_on_the_same_patterns(spark: SparkSession, same_patterns: Any) -> None:
    patterns, quick, literal = same_patterns
    rng = random.Random(2)
    # The kernel passes over patterns whose words are not in the text: texts near every pattern try that it never errs.
    given = [*agents(1, 2_000), *(like(rng, pattern) for pattern in patterns)]
    frame = spark.createDataFrame([(text,) for text in given], "ua string").coalesce(1)
    rows = frame.select(enrich.user_agent("ua").alias("ua")).select("ua.*").collect()
    got = {text: tuple(row)[:4] for text, row in zip(given, rows, strict=True)}
    doubtful = [text for text in given if got[text] != expected(quick, text)]
    # The quick resolver widens bounded repeats; where that may matter, the one that takes patterns literally decides.
    assert len(doubtful) < 100
    different = [(text, got[text], want) for text in doubtful if got[text] != (want := expected(literal, text))]
    assert different == []
    assert len({row.browser for row in rows}) > 10


def test_robots_are_told_from_people(spark: SparkSession) -> None:
    frame = spark.createDataFrame([(text,) for text in [*ROBOTS, *PEOPLE]], "ua string").coalesce(1)
    verdicts = [row[0] for row in frame.select(enrich.user_agent("ua").is_bot).collect()]
    assert verdicts == [True] * len(ROBOTS) + [False] * len(PEOPLE)


def test_a_hostile_text_costs_little(spark: SparkSession) -> None:
    frame = spark.createDataFrame([("Mozilla/5.0 (" + "a;" * 100_000,)], "ua string")
    assert frame.select(enrich.user_agent("ua").browser).first() is not None
