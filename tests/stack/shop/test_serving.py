"""The process: start, outages, end."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import psycopg
import pytest
from confluent_kafka import TopicPartition

from tailrace.event import Event, decode
from tailrace.log.producer import consumer

EXAMPLES = str(Path(__file__).parents[3] / "examples")


def test_an_outage_of_postgres_is_a_friendly_page(stack, serve):
    shop = serve("--bare")
    with httpx.Client(base_url=shop.url, timeout=20) as browser:
        assert browser.get("/").status_code == 200
        stack.postgres.stop()
        try:
            for path in ("/", "/products/tin-cup", "/cart"):
                page = browser.get(path)
                assert page.status_code == 503 and "Back in a moment" in page.text
                assert page.headers["retry-after"] == "5"
                assert "psycopg" not in page.text and "Traceback" not in page.text
            assert browser.get("/healthz").status_code == 200
            assert browser.get("/static/shop.css").status_code == 200
        finally:
            stack.postgres.start()
        assert browser.get("/").status_code == 200, "the first request after the outage is served"
    assert shop.end() == 0
    assert "Postgres is away" in shop.stderr and "Traceback" not in shop.stderr


def test_it_starts_before_postgres_does(stack, serve):
    stack.postgres.stop()
    try:
        shop = serve("--bare")
        assert httpx.get(shop.url).status_code == 503
    finally:
        stack.postgres.start()
    assert httpx.get(shop.url).status_code == 200


def test_several_start_at_once_on_an_empty_database(stack, settings, serve):
    url = settings.postgres.url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE DATABASE shop_race")
    fresh = url.rsplit("/", 1)[0] + "/shop_race"
    shops = [serve("--bare", TAILRACE_POSTGRES__URL=fresh) for _ in range(3)]
    statuses: list[int] = []
    threads = [threading.Thread(target=lambda s=s: statuses.append(httpx.get(s.url).status_code)) for s in shops * 2]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert statuses == [200] * 6
    for shop in shops:
        assert shop.end() == 0
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP DATABASE shop_race")


def test_a_fault_of_ours_is_a_friendly_page(settings, serve):
    url = settings.postgres.url.get_secret_value()
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("CREATE DATABASE shop_broken")
    fresh = url.rsplit("/", 1)[0] + "/shop_broken"
    shop = serve("--bare", TAILRACE_POSTGRES__URL=fresh)
    assert httpx.get(shop.url).status_code == 200
    with psycopg.connect(fresh, autocommit=True) as db:
        db.execute("DROP TABLE shop.products CASCADE")
    page = httpx.get(shop.url)
    assert page.status_code == 500 and "Something broke" in page.text and "psycopg" not in page.text
    assert "default-src 'none'" in page.headers["content-security-policy"]
    assert httpx.get(shop.url + "/about").status_code == 200
    assert shop.end() == 0
    assert "GET / failed" in shop.stderr
    with psycopg.connect(url, autocommit=True) as db:
        db.execute("DROP DATABASE shop_broken WITH (FORCE)")


def test_a_session_outlives_a_restart(serve):
    with httpx.Client() as browser:
        first = serve("--bare")
        browser.get(first.url)
        known = browser.cookies["shop_session"]
        first.end()
        second = serve("--bare")
        browser.get(second.url)
        assert browser.cookies["shop_session"] == known


def test_it_ends_when_asked_and_finishes_what_is_under_way(serve):
    shop = serve("--bare")
    assert httpx.get(shop.url).status_code == 200
    host, port = shop.url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=10) as slow:
        kind = b"Content-Type: application/x-www-form-urlencoded\r\n"
        slow.sendall(b"POST /cart HTTP/1.1\r\nHost: x\r\n" + kind + b"Content-Length: 12\r\n\r\nslug=")
        time.sleep(0.2)
        shop.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        with pytest.raises(httpx.ConnectError):
            httpx.get(shop.url)
        slow.sendall(b"tin-cup")
        answer = b""
        while chunk := slow.recv(65536):
            answer += chunk
    assert answer.startswith(b"HTTP/1.1 403") and answer.endswith(b"</html>")
    assert shop.end() == 0


def test_a_port_that_is_taken_is_said_in_a_sentence(stack, serve):
    taken = serve("--bare").url.rsplit(":", 1)[1]
    command = [sys.executable, "-m", "shop", "--bare", "--port", taken, "--home", str(stack.settings.home)]
    environment = {**os.environ, "PYTHONPATH": EXAMPLES}
    done = subprocess.run(command, capture_output=True, text=True, timeout=30, env=environment, check=False)
    assert done.returncode == 2
    assert "Address already in use" in done.stderr and "Traceback" not in done.stderr


def test_requests_become_events(serve, settings, topic):
    events = topic(1)
    environment = {"TAILRACE_OUTBOX__TOPIC": events, "TAILRACE_CAPTURE__DEVELOPMENT": "true"}
    shop = serve(**environment, TAILRACE_CAPTURE__TRUSTED_PROXIES='["127.0.0.1"]')
    with httpx.Client(base_url=shop.url, headers={"x-forwarded-for": "203.0.113.9"}) as browser:
        browser.get("/products/tin-cup?utm_source=test")
        browser.get("/static/shop.css")
        browser.post("/cart", data={"slug": "tin-cup"})
    assert shop.end() == 0
    reader = consumer(settings)
    try:
        reader.assign([TopicPartition(events, 0, 0)])
        found: list[Event] = []
        deadline = time.monotonic() + 20
        while len(found) < 2 and time.monotonic() < deadline:
            message = reader.poll(0.5)
            if message is not None and not message.error():
                event = decode(message.value())
                assert isinstance(event, Event)
                found.append(event)
    finally:
        reader.close()
    assert [(event.method, event.url, event.status) for event in found] == [
        ("GET", "/products/tin-cup?utm_source=test", 200),
        ("POST", "/cart", 403),
    ]
    assert {event.ip for event in found} == {"203.0.113.9"}
    assert "shop_session" not in repr(found)
