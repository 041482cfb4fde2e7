"""Who is let in, by numbers."""

from __future__ import annotations

import pytest

from tailrace.live.door import Door
from tailrace.live.protocol import Code, Refused
from tailrace.settings import LiveLimits


def refused(door: Door, address: str | None) -> Code:
    with pytest.raises(Refused) as caught:
        door.enter(address)
    return caught.value.code


def test_an_address_may_have_so_many_and_the_others_are_not_hurt():
    door = Door(LiveLimits(clients_per_address=2))
    inside = [door.enter("203.0.113.9"), door.enter("203.0.113.9")]
    assert refused(door, "203.0.113.9") == Code.ADDRESS == 4430
    door.enter("203.0.113.10")
    door.leave(inside.pop())
    door.enter("203.0.113.9")
    assert refused(door, "203.0.113.9") == Code.ADDRESS


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8:1:2::3", "2001:db8:1:2:ffff::1", True),
        ("2001:db8:1:2::3", "2001:db8:1:3::3", False),
        ("203.0.113.9", "::ffff:203.0.113.9", True),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        (None, None, True),
        ("testclient", "another", False),
    ],
)
def test_whose_address_it_is(one, other, same):
    door = Door(LiveLimits(clients_per_address=1))
    door.enter(one)
    if same:
        assert refused(door, other) == Code.ADDRESS
    else:
        door.enter(other)


def test_a_server_that_is_full_says_so_first():
    door = Door(LiveLimits(clients=1, clients_per_address=1))
    place = door.enter("203.0.113.9")
    assert refused(door, "203.0.113.9") == refused(door, "203.0.113.10") == Code.FULL
    door.leave(place)
    door.enter("203.0.113.10")


def test_who_has_left_is_forgotten():
    door = Door(LiveLimits())
    for number in range(1_000):
        door.leave(door.enter(f"10.0.{number // 250}.{number % 250}"))
    assert not door._from and door._inside == 0
