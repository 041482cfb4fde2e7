"""The memory between worker and companion."""

import os
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.intercept import ring as module
from tailrace.intercept.ring import Ring


@pytest.fixture
def ring():
    one = Ring(4096)
    yield one
    one.close()


@pytest.mark.parametrize("calm", [0, 40, 1 << 20])
@given(moves=st.lists(st.one_of(st.binary(max_size=90), st.integers(0, 5)), max_size=80))
def test_every_record_for_which_there_was_room_is_read_once_and_in_order(calm, moves):
    """A binary is written; a number reads so many records and lets go of them."""
    one, before = Ring(256), (module._CALM, module._STEP)
    module._CALM, module._STEP = calm, 16
    try:
        waiting: deque[bytes] = deque()
        for move in moves:
            if isinstance(move, bytes):
                if one.write(move):
                    waiting.append(move)
                else:
                    # What does not fit before the end is lost to the lap, twice the largest at most.
                    assert sum(len(record) + 4 for record in waiting) + 2 * 94 > 256
            else:
                found = one.read(one.safe, one.written, one.size)
                assert [record for _, record in found] == list(waiting)
                for position, _ in found[:move]:
                    one.settle(position, 1)
                    waiting.popleft()
            assert one.count - one.settled == len(waiting)
    finally:
        module._CALM, module._STEP = before
        one.close()


def test_a_bite_has_a_limit_and_the_next_one_goes_on_behind_it(ring):
    for number in range(10):
        assert ring.write(b"%d" % number * 96)
    first = ring.read(0, ring.written, 250)
    assert [record[:1] for _, record in first] == [b"0", b"1", b"2"]
    assert ring.read(first[-1][0], ring.written, 250)[0][1] == b"3" * 96


def test_it_is_there_for_whoever_has_it_open_after_the_writer_was_killed(ring):
    heir = Ring(ring.size, os.dup(ring.fd))
    killed = os.fork()
    if not killed:
        ring.write(b"last words")
        os.kill(os.getpid(), 9)
    os.waitpid(killed, 0)
    assert [record for _, record in heir.read(0, heir.written, 100)] == [b"last words"]
    assert heir.seed == ring.seed
    heir.settle(heir.written, 1)
    heir.numbers = [1.0, 2.5]
    assert (ring.settled, ring.numbers[:3]) == (1, [1.0, 2.5, 0.0])
    heir.close()


def test_a_calm_site_goes_back_to_the_front_and_touches_few_pages():
    one = Ring(64 << 20)
    for _ in range(40_000):
        assert one.write(b"x" * 1000)
        one.settle(one.written, 1)
    assert os.fstat(one.fd).st_blocks * 512 < 2 << 20
    one.close()


def test_what_is_larger_than_the_ring_is_refused(ring):
    assert not ring.write(b"x" * 5000)
    assert ring.write(b"y" * 4000)
    assert not ring.write(b"z" * 200)
    assert ring.refused == 2
    assert [record for _, record in ring.read(ring.safe, ring.written, ring.size)] == [b"y" * 4000]
