"""What a browser gets: files with tags, strict headers, colours that can be read."""

from __future__ import annotations

import asyncio
import re
import zipfile
from importlib import resources
from pathlib import Path

import httpx
import pytest

from tailrace.live import LiveServer
from tailrace.live.pages import chart_library
from tailrace.settings import Settings

STATIC = resources.files("tailrace.live") / "static"


class Client:
    """Asks the application without a server between."""

    def __init__(self, app) -> None:
        self._app = app

    def get(self, path: str, **options) -> httpx.Response:
        async def ask() -> httpx.Response:
            transport = httpx.ASGITransport(self._app)
            async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:
                return await client.get(path, **options)

        return asyncio.run(ask())


@pytest.fixture
def client(tmp_path: Path) -> Client:
    """The application before it is started: no Kafka, no threads."""
    topics = {"page_views": {"public": True}}
    settings = Settings.load(home=tmp_path, environ={}, overrides={"live.topics": topics, "kafka.bootstrap": "x:1"})
    return Client(LiveServer(settings, [webjar(tmp_path)]).app)


def webjar(folder: Path) -> Path:
    jar = folder / "chart.jar"
    with zipfile.ZipFile(jar, "w") as archive:
        archive.writestr("META-INF/resources/webjars/chart.js/4.5.1/dist/chart.umd.js", "large")
        archive.writestr("META-INF/resources/webjars/chart.js/4.5.1/dist/chart.umd.min.js", "small")
    return jar


def test_the_chart_library_comes_out_of_its_jar(tmp_path: Path, client: Client):
    assert chart_library([webjar(tmp_path)]) == b"small"
    assert client.get("/static/chart.js").text == "small"
    (tmp_path / "broken.jar").write_bytes(b"no zip")
    assert chart_library([tmp_path / "broken.jar"]) is None


@pytest.mark.parametrize(
    "path", ["/", "/live.js", "/static/dashboard.js", "/topics/page_views", "/nowhere", "/healthz"]
)
def test_every_answer_has_the_security_headers(client: Client, path: str):
    answer = client.get(path)
    policy = answer.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'self'")
    assert "unsafe" not in policy and "http" not in policy and "*" not in policy
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_a_file_that_did_not_change_costs_a_header(client: Client):
    first = client.get("/live.js")
    assert first.headers["content-type"].startswith("text/javascript")
    again = client.get("/live.js", headers={"If-None-Match": first.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")


def test_every_file_that_the_page_asks_for_is_there(client: Client):
    page = client.get("/").text
    wanted = re.findall(r'(?:src|href)="(/[^"#]+)"', page)
    scripts = [f"/static/{name}" for text in (STATIC.iterdir()) for name in _imports(text)]
    assert len(wanted) > 6 and len(scripts) > 6
    for path in {*wanted, *scripts} - {"/metrics", "/readyz"}:
        assert client.get(path).status_code == 200, path


def _imports(file) -> list[str]:
    return re.findall(r'from "\./([a-z]+\.js)"', file.read_text()) if file.name.endswith(".js") else []


def test_not_ready_says_why(client: Client):
    answer = client.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["problem"] == "Not connected to Kafka yet."
    assert client.get("/healthz").status_code == 200


def tokens(theme: str) -> dict[str, str]:
    css = (STATIC / "dashboard.css").read_text()
    blocks = re.findall(r":root(?:\[data-theme=\"(\w+)\"\])? \{([^}]*)\}", css)
    found: dict[str, str] = {}
    for name, block in blocks:
        if name in ("", theme):
            found |= dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6});", block))
    return found


def contrast(first: str, second: str) -> float:
    """WCAG 2: the ratio of the relative luminances."""

    def luminance(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(first), luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize(
    ("text", "ground"),
    [
        ("ink", "surface"),
        ("ink", "page"),
        ("ink", "accent-soft"),
        ("soft", "surface"),
        ("soft", "page"),
        ("soft", "track"),
        ("accent", "page"),
        ("good", "good-soft"),
        ("warn", "warn-soft"),
        ("bad", "bad-soft"),
    ],
)
def test_text_can_be_read(theme: str, text: str, ground: str):
    colours = tokens(theme)
    assert contrast(colours[text], colours[ground]) >= 4.5
