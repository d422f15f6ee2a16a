"""No key and no body in anything that a gateway writes, however talkative its log is."""

import contextlib
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest

from tests.gateway import Gateway
from tests.handlers.client import Connection, encode_head, exchange, wait_until
from tests.handlers.dialects import BOTH, CHAT, MESSAGES, PATHS, ask, credentials
from tests.upstream import ScriptedUpstream

# What must not be found: each is in one place only, where it belongs.
CLIENT_KEY = "sk-test-the-clients-own-secret-1357"
OTHER_KEY = "sk-test-a-disabled-secret-2468"
WRONG_KEY = "sk-test-a-key-of-nobody-9753"
UPSTREAM_KEYS = ("sk-vendor-first-secret-8642", "sk-vendor-second-secret-9999")
PASSWORD = "correct-horse-of-the-owner"
PROMPT = "zebra-in-the-prompt"
ANSWER = "giraffe-in-the-answer"
TOOL = "walrus-in-a-tool"
COOKIE = "biscuit-of-a-browser"
SECRETS = (CLIENT_KEY, OTHER_KEY, WRONG_KEY, *UPSTREAM_KEYS, PASSWORD, PROMPT, ANSWER, TOOL, COOKIE)
CALLS_AT_ONCE = 16
# The only files that may hold any: an operator's own secrets.
ALLOWED_FILES = {"secrets.toml", "quickstart.key"}
SETTINGS = {
    "log.level": "debug",
    "upstream.first_byte_timeout_s": 1,
    "upstream.idle_timeout_s": 1,
    "upstream.commit_after_s": 0,
    "upstream.max_answer_bytes": 1048576,
    "server.body_timeout_s": 1,
    "server.drain_timeout_s": 1,
}
SCRIPTS = (
    "", "status=400", "status=401", "status=429 retry_after=1", "status=500",
    "status=500 body=html",
    "status=400 body=text", "html200", "empty200", "json200", "error200", "redirect", "garbage=0",
    "garbage=3", "error_event=0", "error_event=3", "cut=3", "reset=3", "reset_before_head",
    "close_before_head", "stall_before_head", "stall=3", "wrong_length", "gzip", "gzip_bomb",
    "big_headers=200", "flood=2", "usage=absurd", "usage=none", "nonsense_word",
)  # fmt: skip


def content(vendor, closed_port):
    channels = []
    for family in BOTH:
        for number, key in enumerate(UPSTREAM_KEYS):
            channels.append({
                "name": f"{family}-{number}", "vendor": "demo", "family": family,
                "base_url": vendor.url, "keys": [key], "groups": ["all"],
                "models": {"demo-small": "demo-small"}, "priority": number,
            })  # fmt: skip
        channels.append({
            "name": f"{family}-closed", "vendor": "demo", "family": family,
            "base_url": f"http://127.0.0.1:{closed_port}", "keys": list(UPSTREAM_KEYS),
            "groups": ["all"], "models": {"dead": "dead"},
        })  # fmt: skip
    price = {"input": "3", "output": "15"}
    return {
        "model": [{"name": name, "price": price} for name in ("demo-small", "dead")],
        "group": [{"name": "all"}],
        "channel": channels,
        "user": [{"name": "owner", "balance": "1000", "password": PASSWORD}],
        "key": [
            {"user": "owner", "name": "main", "group": "all", "secret": CLIENT_KEY},
            {"user": "owner", "name": "off", "group": "all", "secret": OTHER_KEY},
        ],
    }


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """A gateway after all kinds of calls and failures, stopped; the ids of the calls."""
    folder = tmp_path_factory.mktemp("talkative") / "node"
    with ScriptedUpstream() as vendor, socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        gateway = Gateway(folder, SETTINGS)
        try:
            gateway.apply(content(vendor, closed.getsockname()[1]))
            keys = json.loads(gateway.run("key", "list", "--json"))
            gateway.run("key", "disable", next(k["id"] for k in keys if k["name"] == "off"))
            gateway.start()
            calls = everything(gateway)
            operate(gateway)
            assert gateway.stop() == 0
            gateway.start()  # the journal's and the database's other files are there, too
            died = long_stream(gateway)
            gateway.kill()
            died.close()
            gateway.start()
            assert wait_until(lambda: lost(gateway), 10)
            yield gateway, calls
        finally:
            gateway.close()


def lost(gateway):
    return [record for record in gateway.usage() if record["outcome"] == "gateway_lost"]


def long_stream(gateway):
    body = ask(CHAT, "demo-small", f"[[demo ms=50 text={ANSWER} bytes=1]] {PROMPT}", stream=True)
    connection = Connection(gateway.port)
    connection.request("POST", PATHS[CHAT], credentials(CHAT, CLIENT_KEY), body)
    connection.read_head()
    connection.read_chunk()
    return connection


def body_of(family, script, **more):
    prompt = f"[[demo {script} ms=0 text={ANSWER}]] {PROMPT}"
    return ask(family, "demo-small", prompt, **{"metadata": {"user_id": TOOL}, **more})


def everything(gateway):
    """All kinds of calls; how many were answered."""
    answered = said = 0
    for family in BOTH:
        headers = {**credentials(family, CLIENT_KEY), "Cookie": COOKIE}
        bodies = [
            body_of(family, words, stream=flag) for words in SCRIPTS for flag in (True, False)
        ]
        post = partial(exchange, gateway.port, "POST", PATHS[family], headers)
        with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
            for answer in pool.map(post, bodies):
                assert not any(key.encode() in answer.body for key in (CLIENT_KEY, *UPSTREAM_KEYS))
                answered += 1
                said += ANSWER.encode() in answer.body
        for bad in bad_bodies(family):
            exchange(gateway.port, "POST", PATHS[family], headers, bad)
        for secret in (OTHER_KEY, WRONG_KEY):
            body = body_of(family, "")
            exchange(gateway.port, "POST", PATHS[family], credentials(family, secret), body)
        bare = {"Authorization": CLIENT_KEY}
        exchange(gateway.port, "POST", PATHS[family], bare, body_of(family, ""))
        dead = {**body_of(family, ""), "model": "dead"}
        exchange(gateway.port, "POST", PATHS[family], headers, dead)
        exchange(gateway.port, "POST", f"/v1/{PROMPT}?key={CLIENT_KEY}", headers, b"{}")
        exchange(gateway.port, "GET", f"/v1/models?key={CLIENT_KEY}", headers)
        leave(gateway, family, headers)
    exchange(
        gateway.port, "POST", PATHS[MESSAGES], {"x-api-key": CLIENT_KEY}, body_of(MESSAGES, "")
    )
    broken_heads(gateway)
    assert said > len(BOTH) * 4, "what must not be logged was not even said"
    return answered


def bad_bodies(family):
    whole = json.dumps(body_of(family, "")).encode()
    return (
        whole[:-1],
        whole.replace(b'"messages"', b'"messages": "x", "messages"'),
        whole.replace(b"demo-small", b"no-such-model"),
        b"\xff" + whole,
        b"[" * 100_000 + whole,
        json.dumps({**body_of(family, ""), "max_tokens": PROMPT}).encode(),
        json.dumps({**body_of(family, ""), "messages": PROMPT}).encode(),
        json.dumps({**body_of(family, ""), "stream": [PROMPT]}).encode(),
    )


def leave(gateway, family, headers):
    """Clients that go away: within the body, before the head, within a stream."""
    body = json.dumps(body_of(family, "")).encode()
    with Connection(gateway.port) as connection:
        connection.send(encode_head("POST", PATHS[family], headers, body) + body[:-5])
    for script in ("first_ms=5000", "slow_body"):
        with Connection(gateway.port) as connection:
            connection.request("POST", PATHS[family], headers, body_of(family, script))
            time.sleep(0.1)
    with Connection(gateway.port) as connection:
        connection.request("POST", PATHS[family], headers, body_of(family, "flood=64", stream=True))
        connection.read_head()
        connection.reset()
    with Connection(gateway.port) as connection:  # a body that does not come in time
        connection.send(encode_head("POST", PATHS[family], headers, body) + body[:-5])
        connection.read()


def broken_heads(gateway):
    line = f"POST {PATHS[CHAT]} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CLIENT_KEY}\r\n"
    for rest in ("Content-Length: x\r\n\r\n", "no colon\r\n\r\n", "X: \x00\r\n\r\n"):
        with Connection(gateway.port) as connection, contextlib.suppress(ConnectionError):
            connection.send(line.encode() + rest.encode() + PROMPT.encode())
            connection.until_closed()


def operate(gateway):
    """Commands that touch keys and channels, right and wrong ones."""
    gateway.run("channel", "test", "chat_completions-0")
    gateway.run("client-config", "curl", "--key", CLIENT_KEY)
    gateway.run("export")
    gateway.run("key", "list", "--json")
    gateway.run("channel", "list", "--json")
    gateway.run("usage", "export", "--format", "csv")
    twice = {"key": [{"user": "owner", "name": "again", "group": "all", "secret": CLIENT_KEY}]}
    gateway.run("apply", "-", stdin=json.dumps(twice), code=1)
    wrong = {"channel": [{"name": "wrong", "keys": [UPSTREAM_KEYS[0]], "vendr": "demo"}]}
    gateway.run("apply", "-", stdin=json.dumps(wrong), code=1)


def test_the_calls_were_made_and_logged(node):
    gateway, answered = node
    assert answered == 2 * 2 * len(SCRIPTS)
    log = gateway.log()
    assert log.count('"event":"call"') >= answered
    outcomes = {record["outcome"] for record in gateway.usage()}
    assert outcomes >= {"ok", "refused", "upstream_error", "upstream_truncated", "timeout",
                        "client_gone", "gateway_lost"}  # fmt: skip


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_in_the_log(node, secret):
    gateway, _ = node
    lines = [line for line in gateway.log().splitlines() if secret in line]
    assert lines == []


@pytest.mark.parametrize("secret", SECRETS)
def test_no_secret_is_in_a_file(node, secret):
    gateway, _ = node
    files = [path for path in gateway.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".db", ".toml", ".log"}
    holders = [
        path.name
        for path in files
        if path.name not in ALLOWED_FILES and secret.encode() in path.read_bytes()
    ]
    assert holders == []


def test_nobody_else_may_read_the_secrets_of_the_operator(node):
    gateway, _ = node
    assert (gateway.folder / "secrets.toml").stat().st_mode & 0o777 == 0o600


def test_there_is_no_traceback_in_the_log(node):
    assert "Traceback" not in node[0].log()
