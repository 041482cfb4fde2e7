"""Who visits: devices with real user-agent strings, bots, and the ways by which people arrive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Generic, Literal, TypeVar

from tailrace.visitors.addresses import COUNTRIES, Country

T = TypeVar("T")
Kind = Literal["desktop", "phone", "tablet", "bot"]


class Weighted(Generic[T]):
    """Draws items by weight, with `random()` alone: the same draws on every Python."""

    def __init__(self, items: Sequence[tuple[int, T]]) -> None:
        self._items = [item for _, item in items]
        self._bounds = list(accumulate(weight for weight, _ in items))

    def draw(self, random: Random) -> T:
        point = random.random() * self._bounds[-1]
        for bound, item in zip(self._bounds, self._items, strict=True):
            if point < bound:
                return item
        return self._items[-1]


@dataclass(frozen=True, slots=True)
class Device:
    """A browser on a machine, or a bot, by the string that it sends."""

    kind: Kind
    user_agent: str


_MOZ = "Mozilla/5.0 "
_WEBKIT = "AppleWebKit/537.36 (KHTML, like Gecko) "
_WINDOWS = _MOZ + "(Windows NT 10.0; Win64; x64) "
_MAC = _MOZ + "(Macintosh; Intel Mac OS X 10_15_7) "
_ANDROID = _MOZ + "(Linux; Android 10; K) " + _WEBKIT
_IPHONE = _MOZ + "(iPhone; CPU iPhone OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "

_BROWSERS: list[tuple[int, Device]] = [
    (200, Device("desktop", _WINDOWS + _WEBKIT + "Chrome/140.0.0.0 Safari/537.36")),
    (60, Device("desktop", _WINDOWS + _WEBKIT + "Chrome/140.0.0.0 Safari/537.36 Edg/140.0.0.0")),
    (45, Device("desktop", _MOZ + "(Windows NT 10.0; Win64; x64; rv:143.0) Gecko/20100101 Firefox/143.0")),
    (70, Device("desktop", _MAC + "AppleWebKit/605.1.15 (KHTML, like Gecko) Version/18.6 Safari/605.1.15")),
    (60, Device("desktop", _MAC + _WEBKIT + "Chrome/140.0.0.0 Safari/537.36")),
    (20, Device("desktop", _MOZ + "(X11; Linux x86_64; rv:143.0) Gecko/20100101 Firefox/143.0")),
    (20, Device("desktop", _MOZ + "(X11; Linux x86_64) " + _WEBKIT + "Chrome/139.0.0.0 Safari/537.36")),
    (12, Device("desktop", _WINDOWS + _WEBKIT + "Chrome/139.0.0.0 Safari/537.36 OPR/122.0.0.0")),
    (210, Device("phone", _ANDROID + "Chrome/140.0.0.0 Mobile Safari/537.36")),
    (180, Device("phone", _IPHONE + "Version/18.5 Mobile/15E148 Safari/604.1")),
    (40, Device("phone", _ANDROID + "SamsungBrowser/28.0 Chrome/130.0.0.0 Mobile Safari/537.36")),
    (25, Device("phone", _IPHONE + "CriOS/140.0.7339.39 Mobile/15E148 Safari/604.1")),
    (15, Device("phone", _MOZ + "(Android 14; Mobile; rv:143.0) Gecko/143.0 Firefox/143.0")),
    (
        25,
        Device(
            "tablet",
            _MOZ + "(iPad; CPU OS 18_5 like Mac OS X) AppleWebKit/605.1.15 (KHTML, like Gecko) "
            "Version/18.5 Mobile/15E148 Safari/604.1",
        ),
    ),
    (15, Device("tablet", _MOZ + "(Linux; Android 13; SM-X200) " + _WEBKIT + "Chrome/140.0.0.0 Safari/537.36")),
]

_BOTS: list[tuple[int, Device]] = [
    (40, Device("bot", _MOZ + "(compatible; Googlebot/2.1; +http://www.google.com/bot.html)")),
    (20, Device("bot", _MOZ + "(compatible; bingbot/2.0; +http://www.bing.com/bingbot.htm)")),
    (10, Device("bot", _MOZ + "(compatible; YandexBot/3.0; +http://yandex.com/bots)")),
    (10, Device("bot", "DuckDuckBot/1.1; (+http://duckduckgo.com/duckduckbot.html)")),
    (10, Device("bot", _MOZ + "(compatible; AhrefsBot/7.0; +http://ahrefs.com/robot/)")),
    (5, Device("bot", _MOZ + "(compatible; Baiduspider/2.0; +http://www.baidu.com/search/spider.html)")),
    (5, Device("bot", "Mozilla/5.0 (compatible; SemrushBot/7~bl; +http://www.semrush.com/bot.html)")),
]

BROWSERS: Weighted[Device] = Weighted(_BROWSERS)
BOTS: Weighted[Device] = Weighted(_BOTS)
FROM: Weighted[Country] = Weighted([(country.weight, country) for country in COUNTRIES])


@dataclass(frozen=True, slots=True)
class Arrival:
    """How a visit begins: the referrer, if any, and the campaign tags on the first URL."""

    referrer: str | None
    query: str


_TERMS = (
    "enamel+kettle",
    "cast+iron+pan",
    "watering+can+copper",
    "waxed+backpack",
    "gift+for+gardener",
    "oak+chopping+board",
    "brass+desk+lamp",
    "wool+blanket+camping",
    "fountain+pen+beginner",
    "stoneware+mug+handmade",
)

_SEARCHES: list[tuple[int, Arrival]] = [
    (weight, Arrival(f"https://{engine}{term}", ""))
    for weight, engine in (
        (12, "www.google.com/search?q="),
        (4, "www.bing.com/search?q="),
        (3, "duckduckgo.com/?q="),
        (1, "search.yahoo.com/search?p="),
    )
    for term in _TERMS
]

ARRIVALS: Weighted[Arrival] = Weighted(
    [
        (160, Arrival(None, "")),
        *_SEARCHES,
        (20, Arrival("https://www.instagram.com/", "utm_source=instagram&utm_medium=social&utm_campaign=autumn")),
        (16, Arrival("https://www.facebook.com/", "utm_source=facebook&utm_medium=cpc&utm_campaign=retarget")),
        (20, Arrival(None, "utm_source=newsletter&utm_medium=email&utm_campaign=week-{week}")),
        (
            24,
            Arrival(
                "https://www.google.com/",
                "utm_source=google&utm_medium=cpc&utm_campaign=brand&utm_term=mill+street+goods",
            ),
        ),
        (8, Arrival("https://www.reddit.com/r/BuyItForLife/", "")),
        (6, Arrival("https://news.ycombinator.com/", "")),
    ]
)


@dataclass(frozen=True, slots=True)
class Person:
    """One visitor: where from, on what device, how arrived. Bots are people here, too."""

    device: Device
    country: Country
    address: str
    arrival: Arrival

    @property
    def is_bot(self) -> bool:
        return self.device.kind == "bot"


def draw_person(random: Random, bots: float = 0.06) -> Person:
    """A person by the shares above; `bots` of them are bots, which arrive without a referrer."""
    is_bot = random.random() < bots
    device = (BOTS if is_bot else BROWSERS).draw(random)
    country = FROM.draw(random)
    arrival = ARRIVALS.draw(random)
    if is_bot:
        arrival = Arrival(None, "")
    elif "{week}" in arrival.query:
        arrival = Arrival(arrival.referrer, arrival.query.format(week=1 + random.getrandbits(16) % 52))
    return Person(device, country, country.address(random), arrival)
