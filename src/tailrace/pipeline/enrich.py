"""What an event's raw fields say: columns computed in the JVM, in every mode, real time included.

Each function takes a column's name or a Column and returns a Column. Null gives null; odd input gives null or the
nearest sensible answer, never an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.errors import DefinitionError

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession


def user_agent(text: str | Column) -> Column:
    """STRUCT<browser, browser_version, os, device, is_bot>, by the patterns of the uap-core project.

    What the patterns do not know is "Other". `is_bot` also covers robots and HTTP libraries that name themselves.
    """
    return _call("user_agent", text)


def country(ip: str | Column, database: str | Path | None = None) -> Column:
    """The country of an IPv4 or IPv6 address, two letters; null for private, unassigned and malformed addresses.

    By default the country to which a registry gave the address, from a table inside Tailrace (iptocc's data). With
    `database`, a file in MaxMind's format, what that file says.
    """
    return _call("country", ip) if database is None else _call("country", ip, _database(database))


def location(ip: str | Column, database: str | Path) -> Column:
    """STRUCT<country, city> of an address from a file in MaxMind's format; both null where the file knows nothing."""
    return _call("location", ip, _database(database))


def path(url: str | Column) -> Column:
    """The path of a URL as it is written, without query and fragment; "/" where there is none."""
    return _call("path", url)


def query(url: str | Column) -> Column:
    """MAP<name, value> of a URL's query, decoded; of a repeated name the last value counts."""
    return _call("query", url)


def campaign(url: str | Column) -> Column:
    """STRUCT<source, medium, campaign, term, content> from the utm_ parameters; null where there are none."""
    return _call("campaign", url)


def search_term(referrer: str | Column) -> Column:
    """The words that brought the visitor, where the referrer is a search engine that tells them; else null."""
    return _call("search_term", referrer)


def _call(name: str, *arguments: str | Column) -> Column:
    from pyspark.sql import functions as F

    return F.call_function(f"tailrace_{name}", *arguments)


def _database(database: str | Path) -> Column:
    """The file's path as a constant, checked now and brought to the executors of a cluster."""
    from pyspark.sql import SparkSession
    from pyspark.sql import functions as F

    from tailrace.pipeline.session import in_one_process

    place = Path(database).expanduser().resolve()
    if not place.is_file():
        raise DefinitionError(
            f"The address database {place} is not there.", "Give `database` the path of an .mmdb file."
        )
    session = SparkSession.active()  # also in a thread of a worker, for which none was made active
    _check(session, place)
    if not in_one_process(session.sparkContext.master):
        session.sparkContext.addFile(place.as_uri())
    return F.lit(str(place))


def _check(session: SparkSession, place: Path) -> None:
    from tailrace.pipeline import kernel

    try:
        kernel.check_locations(session, place)
    except Exception as error:
        remedy = "Give `database` the path of a file in MaxMind's format (.mmdb)."
        raise DefinitionError(f"The address database {place} cannot be read.", remedy) from error
