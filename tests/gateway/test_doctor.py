"""`doctor --url --key` through real proxies: it finds and names each mistake of a proxy."""

import json

import pytest

from tests.support import commands
from tests.support.clock import FakeClock
from tests.support.gateway import HOST
from tests.support.nginx import Nginx
from tests.support.ports import free_port

KEY = "sk-of-the-doctor-0123456789"
LIMIT_BYTES = 16 << 20
TUNED = """proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
  proxy_set_header X-Forwarded-For $remote_addr; client_max_body_size 64m;"""
BUFFERED = """proxy_ignore_headers X-Accel-Buffering; client_max_body_size 64m;
  proxy_set_header X-Forwarded-For $remote_addr;"""
DOCUMENT = {
    "group": [{"name": "default"}],
    "user": [{"name": "alice"}],
    "key": [{"user": "alice", "name": "doctor", "secret": KEY}],
}


@pytest.fixture(scope="module")
def gateway(launch):
    settings = {"server.trusted_proxies": '["127.0.0.1/32"]', "server.max_body_bytes": LIMIT_BYTES}
    return launch(DOCUMENT, settings, follow=False)


@pytest.fixture
def proxied(gateway, tmp_path):
    """Return proxied(location, around), which returns the findings by check, through such an
    nginx."""
    made = []

    def look(location, url_path=""):
        port = free_port()
        target = f"http://{HOST}:{gateway.port}"
        block = f"server {{ listen {HOST}:{port}; location / {{ {location}"
        if "proxy_pass" not in location:
            block += f" proxy_pass {target};"
        made.append(Nginx(tmp_path, port, block + " } }"))
        return doctor(gateway, f"http://{HOST}:{port}{url_path}")

    yield look
    for nginx in made:
        nginx.close()


def doctor(gateway, url, key=KEY):
    """Return (ok, findings by their check)."""
    args = ["doctor", "--json", "--config", str(gateway.config), "--url", url, "--key", key]
    done = commands.run(args)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1), done.stderr
    by_check = {}
    for one in found["findings"]:
        by_check.setdefault(one["check"], []).append(one)
    return found["ok"], by_check


def bad(found):
    """Return the failed checks, each with its message and remedy."""
    return {
        check: " ".join(f"{one['message']} {one['cure']}" for one in all_of)
        for check, all_of in found.items()
        if any(one["state"] == "failed" for one in all_of)
    }


def test_without_a_proxy_all_is_well(gateway):
    good, found = doctor(gateway, f"http://{HOST}:{gateway.port}")
    assert good, bad(found)
    for check in ("stream", "errors", "headers", "body"):
        assert {one["state"] for one in found[check]} == {"ok"}
    assert gateway.usage() == []


def test_the_key_can_come_by_stdin(gateway):
    args = ["doctor", "--json", "--config", str(gateway.config), "--key", "-"]
    args += ["--url", f"http://{HOST}:{gateway.port}"]
    done = commands.run(args, KEY + "\n")
    found = json.loads(done.stdout)["findings"]
    assert [one["state"] for one in found if one["check"] == "stream"] == ["ok"]


def test_a_tuned_nginx(proxied):
    good, found = proxied(TUNED)
    assert good, bad(found)
    assert {one["state"] for one in found["headers"]} == {"ok"}
    # A proxy that does not pass the client's address gets a warning.
    good, found = proxied(TUNED.replace("proxy_set_header X-Forwarded-For $remote_addr;", ""))
    assert good, bad(found)
    assert [one["state"] for one in found["headers"]] == ["ok", "warning"]


STRIPPED = (f'proxy_set_header {n} "";' for n in ("traceparent", "anthropic-beta", "x-api-key"))
# the body of a location block: the check that fails, and texts of its message and remedy
MISTAKES = {
    "buffers": (BUFFERED, "stream", "buffered: 20 events", "proxy_buffering off"),
    "compresses": (
        f"{TUNED} gzip on; gzip_types text/event-stream; gzip_min_length 1; gzip_proxied any;",
        *("stream", "compresses"),
    ),
    "limits bodies": (
        TUNED.replace("64m", "1m"),
        *("body", "refuses bodies of 8 MiB", "client_max_body_size"),
    ),
    "limits bodies below the gateway": (
        TUNED.replace("64m", "10m"),
        *("body", "16 MiB (server.max_body_bytes)"),
    ),
    "does not wait": (
        f"{TUNED} proxy_read_timeout 40ms;",
        *("stream", "cut after", "proxy_read_timeout"),
    ),
    "strips headers": (
        TUNED + "".join(STRIPPED),
        *("headers", "anthropic-beta, traceparent", "x-api-key"),
    ),
    "strips the credential": (
        f'{TUNED} proxy_set_header Authorization "";',
        *("stream", "strips the header Authorization"),
    ),
    "answers errors itself": (
        f"{TUNED} proxy_intercept_errors on; error_page 404 /none.html;",
        *("errors", "replaces the gateway's errors"),
    ),
    "does not reach the gateway": (
        f"proxy_pass http://{HOST}:1;",
        *("url", "cannot reach it: status 502 with an HTML page from nginx"),
    ),
    "redirects": (
        "return 301 https://elsewhere.example$request_uri;",
        *("url", "redirects to https://elsewhere.example"),
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_of_an_nginx_is_named(proxied, mistake):
    location, check, *words = MISTAKES[mistake]
    _, found = proxied(location)
    message = bad(found)[check]
    assert [word for word in words if word not in message] == []
    if mistake in ("buffers", "limits bodies", "limits bodies below the gateway"):
        assert bad(found).keys() == {check}
    if mistake == "compresses":
        assert any("one by one" in one["message"] for one in found["stream"])


def test_a_key_that_nobody_has(gateway):
    _, found = doctor(gateway, f"http://{HOST}:{gateway.port}", "sk-that-nobody-has-123")
    assert "the key is refused: invalid_api_key" in bad(found)["stream"]
    # A running gateway is checked.
    assert found["gateway"][0]["message"] == "ready, 1 workers"
    assert f"process {gateway.process.pid}'s limit" in found["open files"][0]["message"]


def test_a_skewed_clock(mariadb, tmp_path, monkeypatch):
    clock = FakeClock()
    for name, value in clock.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("SLUICE_STORE__URL", mariadb.fresh_url())
    commands.run(["init", str(tmp_path / "other")])
    config = str(tmp_path / "other" / "gateway.toml")
    for offset_s, state, word in (
        (0, "ok", ""),
        (90, "failed", "ahead"),
        (-90, "failed", "behind"),
    ):
        clock.set_by(offset_s)
        found = json.loads(commands.run(["doctor", "--json", "--config", config]).stdout)
        [finding] = [one for one in found["findings"] if one["check"] == "clock"]
        assert finding["state"] == state and word in finding["message"], finding
