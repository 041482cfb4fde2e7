"""Country and city of addresses, against the Python libraries of the same data."""

from __future__ import annotations

import gzip
import random
from functools import cache
from importlib.metadata import version
from ipaddress import IPv4Address, IPv6Address, ip_network
from pathlib import Path

import iptocc
import maxminddb
import pytest
from pyspark.sql import SparkSession

from tailrace import enrich
from tailrace.errors import DefinitionError
from tailrace.kernel import countries

from .mmdb import write

ODD = [
    "",
    " ",
    "x",
    "1.2.3",
    "1.2.3.4.5",
    "256.1.1.1",
    "01.2.3.4",
    "1.2.3.4 ",
    " 1.2.3.4",
    "1.2.3.-4",
    "1..2.3",
    "1.2.3.",
    "0x1.2.3.4",
    "8.8.8.8:80",
    ":",
    "::",
    ":::",
    "1::2::3",
    "2001:db8::g",
    "2001:4860:4860::8888",
    "2001:4860:4860:0:0:0:0:8888",
    "2001:4860:4860:0:0:0:8888",
    "[2001:4860::1]",
    "2001:4860::8.8.8.8",
    "::8.8.8.8",
    "2001:4860:4860:0:0:0:0:8888:1",
    "2001:4860:4860::8888%eth0",
    "12345::",
    "fe80::1",
    "2001:4860::1:",
    ":2001::1",
    "10.0.0.1",
    "127.0.0.1",
    "192.168.1.1",
    "169.254.1.1",
    "100.64.0.1",
    "224.0.0.1",
    "255.255.255.255",
    "0.0.0.0",
    "fc00::1",
    "::1",
    "ff02::1",
    "8.8.8.8",
    "2001:4860::01234",
    "1:2:3:4:5:6:7::",
    "::2:3:4:5:6:7:8",
    "1:2:3:4:5:6:7:8::",
    "2001:4860:0:0:0:0:8.8.8.8",
    "2001:4860:0:0:0:0:0:8.8.8.8",
    "é",
    "2A00:1450::1",
]


@cache
def ranges() -> tuple[countries.Ranges, countries.Ranges]:
    return countries.ranges()


def addresses(seed: int, count: int) -> list[str]:
    """Anywhere, and at the edges of the table's ranges."""
    rng = random.Random(seed)
    v4, v6 = ranges()
    edges4 = [rng.choice(v4)[0] + rng.choice([-1, 0, 1]) for _ in range(count)]
    edges6 = [rng.choice(v6)[0] + rng.choice([-1, 0, 1]) for _ in range(count)]
    fours = [rng.getrandbits(32) for _ in range(count)] + [n for n in edges4 if 0 <= n < 1 << 32]
    sixes = [0x2 << 124 | rng.getrandbits(124) for _ in range(count)] + [n for n in edges6 if 0 <= n < 1 << 128]
    return [str(IPv4Address(n)) for n in fours] + [str(IPv6Address(n)) for n in sixes]


def test_the_table_is_made_from_the_installed_iptocc() -> None:
    content = gzip.decompress(countries.FILE.read_bytes())
    assert content.startswith(countries.MAGIC + version("iptocc").encode() + b"\n"), (
        "python -m tailrace.kernel.countries"
    )


def test_country_is_iptoccs(spark: SparkSession) -> None:
    asked = [*ODD, *addresses(1, 8_000)]
    frame = spark.createDataFrame([(ip,) for ip in asked], "ip string").coalesce(1)
    got = [row[0] for row in frame.select(enrich.country("ip")).collect()]
    want = iptocc.country_code(asked)
    assert [(ip, g, w) for ip, g, w in zip(asked, got, want, strict=True) if g != w] == []
    assert len(set(want)) > 200


def test_a_mapped_address_is_the_address_it_maps(spark: SparkSession) -> None:
    row = spark.sql(
        "select tailrace_country('::ffff:8.8.8.8'), tailrace_country('::FFFF:808:808'), tailrace_country(null)"
    ).first()
    assert row is not None
    assert tuple(row) == ("US", "US", None)


@pytest.fixture
def database(tmp_path: Path) -> Path:
    rng = random.Random(5)
    records = {}
    for n in range(400):
        names = {"de": f"Stadt {n}", "en": f"City {n} 東京"}
        inner = {"city": {"geoname_id": ("u32", n), "names": names}, "country": {"iso_code": "DE", "names": names}}
        record = rng.choice(
            [inner, {"country": inner["country"]}, {"city": inner["city"]}, {"location": {"latitude": 1.5}}]
        )
        net = (
            f"{n % 200 + 1}.{n // 200 * 7}.0.0/{rng.choice([16, 20, 24])}"
            if n % 2
            else f"2a{n % 100:02x}:{n:x}::/{rng.choice([32, 48])}"
        )
        records[ip_network(net)] = record
    path = tmp_path / "city of tests.mmdb"
    write(path, records)
    return path


def test_location_is_maxminddbs(spark: SparkSession, database: Path) -> None:
    rng = random.Random(6)
    near4 = [
        f"{rng.randrange(1, 201)}.{rng.choice([0, 7])}.{rng.choice([0, 1, 15, 16, 255])}.{rng.randrange(256)}"
        for _ in range(2_000)
    ]
    near6 = [
        str(IPv6Address((0x2A00 | rng.randrange(100)) << 112 | rng.randrange(400) << 96 | rng.getrandbits(17) << 64))
        for _ in range(2_000)
    ]
    asked = [*addresses(2, 500), *near4, *near6]
    frame = spark.createDataFrame([(ip,) for ip in [*asked, *ODD]], "ip string").coalesce(1)
    columns = (enrich.location("ip", database), enrich.country("ip", database=database))
    rows = frame.select(*columns).collect()
    with maxminddb.open_database(database) as reader:
        records = [reader.get(ip) or {} for ip in asked]
    want = [(r.get("country", {}).get("iso_code"), r.get("city", {}).get("names", {}).get("en")) for r in records]
    assert [tuple(row[0]) for row in rows[: len(asked)]] == want
    assert [row[1] for row in rows[: len(asked)]] == [country for country, _ in want]
    assert len(set(want)) > 50


def test_a_database_that_is_none_is_refused_before_anything_runs(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(DefinitionError, match="is not there"):
        enrich.country("ip", database=tmp_path / "none.mmdb")
    (tmp_path / "bad.mmdb").write_bytes(b"not a database")
    with pytest.raises(DefinitionError, match="cannot be read"):
        enrich.location("ip", database=tmp_path / "bad.mmdb")
