"""The memory between worker and companion."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.intercept.ring import Ring


@pytest.fixture
def ring():
    one = Ring(64)
    yield one
    one.close()


@given(st.lists(st.binary(min_size=1, max_size=64), max_size=30))
def test_what_was_written_last_can_be_read_also_around_the_end(pieces):
    one = Ring(64)
    position = 0
    for piece in pieces:
        one.write(position, piece)
        assert one.read(position, len(piece)) == piece
        position += len(piece)
    one.close()


def test_it_is_there_for_whoever_has_it_open_after_the_other_has_closed_it(ring):
    heir = Ring(64, os.dup(ring.fd))
    killed = os.fork()
    if not killed:
        ring.write(60, b"last words")
        os.kill(os.getpid(), 9)
    os.waitpid(killed, 0)
    assert heir.read(60, 10) == b"last words"
    heir.close()


def test_when_all_is_safe_it_begins_at_the_front_again(ring):
    assert ring.rewound(0) == 0
    assert ring.rewound(10) == 64
    assert ring.rewound(64) == 64
    assert ring.rewound(65) == 128


def test_what_a_busy_hour_used_is_given_back():
    one = Ring(8 << 20)
    one.write(0, b"x" * (3 << 20))
    assert os.fstat(one.fd).st_size == 3 << 20
    one.rewound(3 << 20)
    assert os.fstat(one.fd).st_size == 0
    one.close()
