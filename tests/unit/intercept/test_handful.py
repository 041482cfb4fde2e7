from __future__ import annotations

import asyncio
import threading
from http import HTTPStatus
from itertools import chain

import pytest

from tailrace.intercept import handful as handfuls
from tailrace.intercept.capture import unpacked
from tailrace.intercept.handful import Handful
from tailrace.intercept.rules import Rules


def visit_of(number, method="GET"):
    headers = [(b"cookie", b"s3cret"), (b"accept", b"*/*")]
    scope = {"method": method, "path": f"/{number}", "query_string": b"token=s3cret", "headers": headers}
    return scope, 1, 2, 200, None, None


def made(notebook):
    book = notebook()
    handful = Handful(book, Rules(book.settings.capture))
    handful.may_wait = True
    return book, handful


def written(book):
    """The numbers of the sightings, as they lie together."""
    return [[int(one[3][1:]) for one in unpacked(record)] for record in book.queued(0)]


def flat(together):
    return list(chain.from_iterable(together))


def test_a_calm_site_waits_for_nothing(notebook):
    book, handful = made(notebook)

    async def visit():
        for number in range(3):
            handful.add(*visit_of(number))
            assert book._ring.count == number + 1
            await asyncio.sleep(0.01)

    asyncio.run(visit())
    assert written(book) == [[0], [1], [2]]


@pytest.fixture
def no_time_passes(monkeypatch):
    monkeypatch.setattr(handfuls, "perf_counter_ns", lambda: 10**12)


def test_a_busy_site_packs_several_together_and_leaves_none_waiting(notebook, no_time_passes):
    book, handful = made(notebook)

    async def visit():
        for number in range(40):
            handful.add(*visit_of(number))
            if number % 2 == 0:
                await asyncio.sleep(0)
        assert book._ring.count < 40, "the last ones wait"
        await asyncio.sleep(0.1)
        assert book._ring.count == 40, "for some milliseconds"

    asyncio.run(visit())
    together = written(book)
    assert flat(together) == list(range(40)), "in order"
    assert together[0] == [0] and 8 <= max(map(len, together)) < 16


def test_what_waits_is_redacted_before_it_leaves_the_process(notebook, no_time_passes):
    book, handful = made(notebook)

    async def visit():
        for number in range(3):
            handful.add(*visit_of(number))
        assert book.stats()["captured"] == 3

    asyncio.run(visit())
    assert written(book) == [[0], [1, 2]]
    assert b"s3cret" not in b"".join(book.queued(0))


def test_nothing_waits_where_nobody_tells_of_the_end(notebook, no_time_passes):
    book, handful = made(notebook)
    handful.may_wait = False

    async def visit():
        for number in range(3):
            handful.add(*visit_of(number))

    asyncio.run(visit())
    assert written(book) == [[0], [1], [2]]


def test_one_that_comes_after_the_timer_gets_a_timer_of_its_own(notebook, no_time_passes):
    """The event loop's clock may be a millisecond ahead of ours."""
    book, handful = made(notebook)

    async def visit():
        for number in range(4):
            handful.add(*visit_of(number))
            if number:
                await asyncio.sleep(0.05)

    asyncio.run(visit())
    assert written(book) == [[0], [1], [2], [3]]


def test_a_status_of_the_standard_library_is_a_number(notebook):
    book, handful = made(notebook)
    scope, arrival, started, _, outcome, visitor = visit_of(1)
    handful.add(scope, arrival, started, HTTPStatus.NOT_FOUND, outcome, visitor)
    assert book.events()[0]["status"] == 404


def test_stats_in_the_middle_of_it_do_not_stand_still(notebook, monkeypatch):
    book, handful = made(notebook)
    monkeypatch.setattr(handful, "_redact", lambda *parts: (book.stats(), *parts)[1:])
    handful.add(*visit_of(1))
    assert written(book) == [[1]]


def test_a_loop_that_ends_leaves_nothing_behind(notebook):
    book, handful = made(notebook)

    async def visit(first):
        for number in range(first, first + 3):
            handful.add(*visit_of(number))

    asyncio.run(visit(0))
    asyncio.run(asyncio.sleep(0.01))
    asyncio.run(visit(3))
    assert book.stats()["captured"] == 6
    assert flat(written(book)) == list(range(6))


def test_closing_takes_what_waits(notebook, no_time_passes):
    book, handful = made(notebook)

    async def visit():
        handful.add(*visit_of(0))
        handful.add(*visit_of(1))
        await asyncio.get_running_loop().run_in_executor(None, book.close)
        assert book._ring.count == 2

    asyncio.run(visit())


def test_without_an_event_loop_each_is_packed_at_once(notebook):
    book, handful = made(notebook)
    for number in range(3):
        handful.add(*visit_of(number))
    assert written(book) == [[0], [1], [2]]


def test_a_forked_child_leaves_them_to_its_parent(notebook, no_time_passes):
    book, handful = made(notebook)

    async def visit():
        handful.add(*visit_of(0))
        handful.add(*visit_of(1))
        book._forked()
        assert book.stats()["captured"] == 0

    asyncio.run(visit())


def test_one_that_cannot_be_packed_does_not_take_the_others_with_it(notebook, no_time_passes, caplog):
    book, handful = made(notebook)

    async def visit():
        for number in range(4):
            handful.add(*visit_of(number, object() if number == 2 else "GET"))
        await asyncio.sleep(0.1)

    asyncio.run(visit())
    assert flat(written(book)) == [0, 1, 3]
    (told,) = caplog.messages
    assert "could not be written down" in told


def test_threads_lose_none(notebook):
    book, handful = made(notebook)

    async def visit(first):
        for number in range(first, first + 500):
            handful.add(*visit_of(number))
            if number % 7 == 0:
                await asyncio.sleep(0)

    threads = [threading.Thread(target=asyncio.run, args=(visit(500 * n),)) for n in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert book.stats()["captured"] == 2000
    assert sorted(flat(written(book))) == list(range(2000))
