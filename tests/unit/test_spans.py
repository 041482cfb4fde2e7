"""One way to write a span of time, for settings, flags and arguments alike."""

from __future__ import annotations

import pytest

from tailrace.errors import DefinitionError, SettingsError
from tailrace.spans import Span


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("15 seconds", 15_000),
        ("90s", 90_000),
        ("200ms", 200),
        ("1.5 hours", 5_400_000),
        ("1.5m", 90_000),
        ("1m", 60_000),
        ("2 Days", 172_800_000),
        (" 1 week ", 604_800_000),
        ("0s", 0),
    ],
)
def test_a_number_and_a_unit(text, ms):
    assert Span.parse(text, "keep").ms == ms


@pytest.mark.parametrize("text", ["", "90", "soon", "-5s", "7 moons", "5 parsecs 2", "1,5 hours", "1e3 s", "٣ days"])
def test_anything_else_names_what_it_was_given_for(text):
    with pytest.raises(SettingsError, match=r"--for: .* is not a span of time\. .*\"90s\", \"15 minutes\""):
        Span.parse(text, "--for")


def test_the_caller_chooses_the_error():
    with pytest.raises(DefinitionError, match="watermark"):
        Span.parse("soon", "watermark", DefinitionError)


def test_what_must_last():
    assert Span.parse_positive("1ms", "--for").seconds == 0.001
    for text in ("0s", "0.0001 ms"):
        with pytest.raises(SettingsError, match=f"--for: '{text}' is no time at all"):
            Span.parse_positive(text, "--for")


def test_spark_reads_what_it_writes():
    assert str(Span.parse("1.5s", "keep")) == "1500 milliseconds"
