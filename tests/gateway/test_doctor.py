"""`doctor --url --key` through real proxies: each mistake of a proxy is found and named."""

import json
import socket
import threading

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
    settings = {
        "server.trusted_proxies": '["127.0.0.1/32"]',
        "server.max_body_bytes": LIMIT_BYTES,
    }
    return launch(DOCUMENT, settings, follow=False)


@pytest.fixture
def proxied(gateway, tmp_path):
    """proxied(location, around) -> the findings by check, through such an nginx."""
    made = []

    def look(location, http="", at="/", url_path=""):
        port = free_port()
        target = f"http://{HOST}:{gateway.port}"
        block = f"{http} server {{ listen {HOST}:{port}; location {at} {{ {location}"
        if "proxy_pass" not in location:
            block += f" proxy_pass {target};"
        made.append(Nginx(tmp_path, port, block + " } }"))
        return doctor(gateway, f"http://{HOST}:{port}{url_path}")

    yield look
    for nginx in made:
        nginx.close()


def doctor(gateway, url, key=KEY):
    """(ok, findings by their check)."""
    args = ["doctor", "--json", "--config", str(gateway.config), "--url", url, "--key", key]
    done = commands.run(args)
    found = json.loads(done.stdout)
    assert done.returncode == (0 if found["ok"] else 1), done.stderr
    by_check = {}
    for one in found["findings"]:
        by_check.setdefault(one["check"], []).append(one)
    return found["ok"], by_check


def bad(found):
    """The checks that failed, each with its message and cure."""
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


def test_an_nginx_that_buffers(proxied):
    _, found = proxied(BUFFERED)
    assert bad(found).keys() == {"stream"}
    assert "buffered: 20 events" in bad(found)["stream"]
    assert "proxy_buffering off" in bad(found)["stream"]


def test_an_nginx_that_compresses(proxied):
    gzip = "gzip on; gzip_types text/event-stream; gzip_min_length 1; gzip_proxied any;"
    _, found = proxied(TUNED + gzip)
    assert "compresses" in bad(found)["stream"]
    assert any("one by one" in one["message"] for one in found["stream"])


def test_an_nginx_that_limits_bodies(proxied):
    _, found = proxied(TUNED.replace("64m", "1m"))
    assert bad(found).keys() == {"body"}
    assert "refuses bodies of 8 MiB" in bad(found)["body"]
    assert "client_max_body_size" in bad(found)["body"]


def test_an_nginx_with_a_limit_below_the_gateways(proxied):
    _, found = proxied(TUNED.replace("64m", "10m"))
    assert bad(found).keys() == {"body"}
    assert "16 MiB (server.max_body_bytes)" in bad(found)["body"]


def test_an_nginx_that_does_not_wait(proxied):
    _, found = proxied(TUNED + "proxy_read_timeout 40ms;")
    assert "cut after" in bad(found)["stream"]
    assert "proxy_read_timeout" in bad(found)["stream"]


def test_an_nginx_that_strips_headers(proxied):
    strip = 'proxy_set_header traceparent ""; proxy_set_header anthropic-beta "";'
    _, found = proxied(TUNED + strip + 'proxy_set_header x-api-key "";')
    assert "anthropic-beta, traceparent" in bad(found)["headers"]
    assert "x-api-key" in bad(found)["headers"]


def test_an_nginx_that_strips_the_credential(proxied):
    _, found = proxied(TUNED + 'proxy_set_header Authorization "";')
    assert "strips the header Authorization" in bad(found)["stream"]


def test_an_nginx_that_does_not_say_who_calls(proxied):
    good, found = proxied(TUNED.replace("proxy_set_header X-Forwarded-For $remote_addr;", ""))
    assert good, bad(found)
    assert [one["state"] for one in found["headers"]] == ["ok", "warning"]


def test_an_nginx_that_answers_errors_itself(proxied):
    own = "proxy_intercept_errors on; error_page 404 /none.html;"
    _, found = proxied(TUNED + own)
    assert "replaces the gateway's errors" in bad(found)["errors"]


def test_an_nginx_that_does_not_reach_the_gateway(proxied, dead_port):
    _, found = proxied(f"proxy_pass http://{HOST}:{dead_port};")
    assert "does not reach it: status 502 with an HTML page from nginx" in bad(found)["url"]


def test_an_nginx_that_redirects(proxied):
    _, found = proxied("return 301 https://elsewhere.example$request_uri;")
    assert "redirects to https://elsewhere.example" in bad(found)["url"]


def test_an_address_with_the_version_at_its_end(proxied):
    _, found = proxied(TUNED, url_path="/v1")
    assert bad(found).keys() == {"url"}
    assert "ends with /v1" in bad(found)["url"]
    assert {one["state"] for one in found["stream"]} == {"ok"}


def test_a_key_that_nobody_has(gateway):
    _, found = doctor(gateway, f"http://{HOST}:{gateway.port}", "sk-that-nobody-has-123")
    assert "the key is refused: invalid_api_key" in bad(found)["stream"]


def test_a_gateway_that_runs_is_looked_at(gateway):
    _, found = doctor(gateway, f"http://{HOST}:{gateway.port}")
    assert found["gateway"][0]["message"] == "ready, 1 workers"
    assert f"process {gateway.process.pid}'s limit" in found["open files"][0]["message"]


def test_one_stream_at_a_time_over_all_workers(launch):
    gateway = launch(DOCUMENT, {"server.workers": 3}, follow=False)
    statuses = []

    def ask():
        headers = {"Authorization": f"Bearer {KEY}"}
        statuses.append(gateway.call("GET", "/v1/sluice/stream", headers=headers)[0])

    threads = [threading.Thread(target=ask) for _ in range(9)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [200] + [429] * 8


def test_a_drain_waits_for_the_stream(launch_own):
    gateway = launch_own(DOCUMENT, follow=False)
    with socket.create_connection((HOST, gateway.port)) as client:
        head = f"GET /v1/sluice/stream HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n\r\n"
        client.sendall(head.encode())
        client.settimeout(20)
        came = client.recv(65536)
        assert came.startswith(b"HTTP/1.1 200")
        assert gateway.stop() == 0
        while piece := client.recv(65536):
            came += piece
    assert came.count(b"data: ") == 20 and came.endswith(b"0\r\n\r\n")


def test_a_skewed_clock(mariadb, tmp_path, monkeypatch):
    clock = FakeClock(tmp_path)
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
