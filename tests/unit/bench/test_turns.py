from __future__ import annotations

from bench.turns import Turns, judged


def turns(*slowest: int, rate: float = 1000.0) -> Turns:
    """Ten turns of a hundred requests of 50 µs each; the slowest two of a turn take so long."""
    made = Turns()
    for number in range(10):
        made.add([50] * 98 + [slowest[number % len(slowest)]] * 2, rate, 40.0)
    return made


def test_a_quantile_is_that_of_an_undisturbed_turn_and_all_requests_have_their_own():
    seen = turns(60, 60, 60, 60, 60, 60, 60, 5000, 5000, 5000)
    assert (seen.quantile(0.5), seen.quantile(0.99), seen.quantile(0.99, 0.5), seen.whole_p99()) == (50, 60, 60, 60)
    assert turns(60, 5000).whole_p99() == 5000 and seen.slowest() == 5000
    assert seen.busy(10_000) == 0.4


def test_the_aim_is_missed_by_what_is_slower_in_every_turn():
    missed, untold = judged(turns(60), turns(61), turns(200))
    assert len(missed) == 3 and not untold and all("+140" in one for one in missed)
    assert judged(turns(60), turns(61), turns(150)) == ([], [])
    assert judged(turns(60), turns(60), turns(60, rate=940.0))[0] == ["95 % of bare"]


def test_what_two_that_are_the_same_differ_by_is_not_blamed_on_the_interceptor():
    stalled = turns(60, 60, 60, 60, 60, 60, 60, 60, 9000, 9000)
    stalled.took[0] = [9000] * 100
    missed, untold = judged(turns(60), stalled, stalled)
    assert not missed
    (said,) = untold
    assert said.startswith("cannot be told: p99 of all requests") and "+8940" in said
    assert judged(turns(60), turns(60), stalled)[0] == ["p99 +100 µs of all requests (+8940)"]
    assert len(judged(turns(60), turns(200), turns(5000))[0]) == 3, "nor is everything the machine's"
