"""The people are what they say they are, by the data that the pipelines use."""

from __future__ import annotations

from collections import Counter
from random import Random

import iptocc
import pytest
from ua_parser import parse

from tailrace.visitors.addresses import COUNTRIES
from tailrace.visitors.people import _BOTS, _BROWSERS, draw_person


@pytest.mark.parametrize("country", COUNTRIES, ids=lambda country: country.code)
def test_every_address_lies_in_its_country(country):
    random = Random(1)
    for _ in range(60):
        address = country.address(random)
        assert iptocc.country_code(address) == country.code, address


@pytest.mark.parametrize("device", [device for _, device in _BROWSERS], ids=lambda device: device.user_agent[-30:])
def test_browsers_are_known(device):
    known = parse(device.user_agent)
    assert known.user_agent is not None and known.user_agent.family != "Other"
    assert known.os is not None
    assert known.device is None or known.device.family != "Spider"


@pytest.mark.parametrize("device", [device for _, device in _BOTS], ids=lambda device: device.user_agent[:40])
def test_bots_are_known_as_bots(device):
    known = parse(device.user_agent)
    assert known.device is not None and known.device.family == "Spider"


def test_the_crowd_is_mixed():
    random = Random(5)
    people = [draw_person(random) for _ in range(4_000)]
    kinds = Counter(person.device.kind for person in people)
    assert kinds["bot"] == pytest.approx(4_000 * 0.06, rel=0.25)
    assert kinds["phone"] > 1_000 and kinds["desktop"] > 1_000 and kinds["tablet"] > 50
    assert len({person.country.code for person in people}) > 50
    assert all(person.arrival.referrer is None for person in people if person.is_bot)
    assert draw_person(Random(9)) == draw_person(Random(9))
