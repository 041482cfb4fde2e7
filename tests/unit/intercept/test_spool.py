from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.intercept import spool as spools
from tailrace.intercept.counts import Counts
from tailrace.intercept.framing import frame, scan
from tailrace.intercept.spool import SpoolFull

# A busy machine is no failure.
patient = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

BIG = 1 << 30


def records(count: int, start: int = 0) -> list[tuple[bytes, bytes]]:
    return [(b"v%d" % (n % 3), b"event %d" % n) for n in range(start, start + count)]


def values(spool: spools.Spool, limit: int = 10_000) -> list[bytes]:
    return [value for _, _, value in spool.read(limit)]


def dead(spool: spools.Spool) -> Path:
    """As if the process had been killed: nothing is tidied, only the lock is gone."""
    spool.abandon()
    return spool.directory.parent


def test_records_come_out_in_order_once(tmp_path):
    spool = spools.create(tmp_path, BIG, 200)
    spool.append(records(10))
    spool.append(records(10, 10))
    got = []
    while spool.unsent:
        got += values(spool, 3)
    assert got == [value for _, value in records(20)]
    assert not values(spool)
    spool.close()


def test_what_is_acknowledged_is_deleted_and_an_empty_spool_leaves_nothing(tmp_path):
    spool = spools.create(tmp_path, BIG, 100)
    spool.append(records(20))
    while spool.unsent:
        for place, _, _ in spool.read(5):
            spool.ack(place)
    spool.tidy()
    assert spool.empty and spool.size == 0
    spool.append(records(1))
    assert values(spool) == [b"event 0"]
    spool.rewind()
    ((place, _, _),) = spool.read(10)
    spool.ack(place)
    spool.close()
    assert list(tmp_path.iterdir()) == []


def test_records_on_their_way_are_read_only_after_a_restart(tmp_path):
    spool = spools.create(tmp_path, BIG, BIG)
    places = spool.append(records(4), sent=True)
    assert not spool.unsent
    spool.append(records(2, 4))
    assert values(spool) == [b"event 4", b"event 5"]
    spool.ack(places[1])
    spool.tidy()
    (heir,) = spools.adopt(dead(spool), BIG, BIG)
    assert values(heir) == [b"event 0", b"event 2", b"event 3", b"event 4", b"event 5"]
    heir.close()


def test_a_spool_whose_owner_lives_is_not_adopted(tmp_path):
    spool = spools.create(tmp_path, BIG, BIG)
    spool.append(records(1))
    assert spools.adopt(tmp_path, BIG, BIG) == []
    dead(spool)
    (heir,) = spools.adopt(tmp_path, BIG, BIG)
    assert spools.adopt(tmp_path, BIG, BIG) == []
    heir.close()
    assert heir.directory.exists(), "what is not acknowledged stays"


def test_a_torn_last_record_is_counted_logged_and_the_rest_delivered(tmp_path, caplog):
    spool = spools.create(tmp_path, BIG, BIG)
    spool.append(records(5))
    (path,) = spool.directory.glob("*.seg")
    os.truncate(path, path.stat().st_size - 3)
    (heir,) = spools.adopt(dead(spool), BIG, BIG)
    assert values(heir) == [b"event %d" % n for n in range(4)]
    counts = Counts()
    counts.damage(heir)
    counts.damage(heir)
    assert counts.damaged == heir.damaged == 1
    (said,) = caplog.messages
    assert said.startswith("1 damaged record(s) in") and str(heir.directory) in said
    heir.close()


@patient
@given(st.data())
def test_a_flipped_bit_costs_no_other_record(data):
    image = bytearray(b"".join(frame(key, value) for key, value in records(6)))
    bit = data.draw(st.integers(0, len(image) * 8 - 1))
    image[bit // 8] ^= 1 << bit % 8
    found, damaged = scan(bytes(image))
    hit = bit // 8 // (len(image) // 6)
    assert [value for _, _, value in found] == [b"event %d" % n for n in range(6) if n != hit]
    assert damaged == 1


@patient
@given(st.binary(max_size=200))
def test_rubbish_is_never_a_record_and_never_an_error(rubbish):
    found, damaged = scan(rubbish)
    assert found == [] and damaged == (1 if rubbish else 0)


def test_a_full_spool_refuses_and_keeps_what_it_has(tmp_path):
    spool = spools.create(tmp_path, 300, BIG)
    spool.append(records(5))
    with pytest.raises(SpoolFull):
        spool.append(records(50))
    assert values(spool) == [b"event %d" % n for n in range(5)]
    spool.close()


def test_a_full_disk_leaves_no_torn_record(tmp_path, monkeypatch):
    spool = spools.create(tmp_path, BIG, BIG)
    spool.append(records(3))
    write = os.write

    def full(fd, data):
        if len(data) < 40:
            raise OSError(errno.ENOSPC, "No space left on device")
        return write(fd, data[:40])

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(SpoolFull):
        spool.append(records(10))
    monkeypatch.undo()
    spool.append(records(2, 3))
    (heir,) = spools.adopt(dead(spool), BIG, BIG)
    assert values(heir) == [b"event %d" % n for n in range(5)]
    assert heir.damaged == 0
    heir.close()


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(place)], capture_output=True, check=False
    )
    if made.returncode:
        pytest.skip("only root may mount a small disk")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_a_disk_that_is_really_full_keeps_every_whole_record(small_disk):
    spool = spools.create(small_disk, BIG, BIG)
    written = 0
    with pytest.raises(SpoolFull):
        while True:
            spool.append([(b"v", b"%06d" % written + b"x" * 500)])
            written += 1
    assert written > 50
    (heir,) = spools.adopt(dead(spool), BIG, BIG)
    assert [int(value[:6]) for value in values(heir)] == list(range(written))
    assert heir.damaged == 0
    for place in [place for place, _, _ in (heir.rewind(), heir.read(BIG))[1]]:
        heir.ack(place)
    heir.close()
    assert not list(small_disk.iterdir())
