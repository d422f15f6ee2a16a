"""No key and no body appear in anything that a gateway writes, even at the most verbose log
level."""

import contextlib
import itertools
import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.support.client import Connection, encode_head, exchange, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    ask,
    credentials,
    path_of,
)
from tests.support.documents import channel, document
from tests.support.echo import answer_of
from tests.support.gateway import Gateway
from tests.support.upstream import RawUpstream, ScriptedUpstream

# Texts that must not be found; each belongs in one place only.
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
CALLS_AT_ONCE = 32
MODEL = "demo-small"
# A part of the prompt that a vendor repeats in its error: records may have it, the log may not.
ECHOED = "ostrich-in-the-prompt"
LEAKY = "leaky"
LEAKY_HOST = "vendor.of-the-channel.example"
# The only files that may contain any: an operator's own secrets.
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
    "", "status=400", "status=401", "status=500 body=html", "html200", "error200", "redirect",
    "garbage=3", "error_event=3", "cut=3", "reset_before_head", "stall_before_head", "stall=3",
    "gzip_bomb", "big_headers=200", "flood=2", "usage=absurd",
)  # fmt: skip

# Each script has a model and channels of its own, because frequent faults open a circuit.
MODELS = (MODEL, *(f"{MODEL}-{number}" for number in range(len(SCRIPTS))))

# The family's field for the conversation, and a field that the gateway reads as a number.
CONVERSATION = {CHAT: "messages", RESPONSES: "input", MESSAGES: "messages", GENERATE: "contents"}
BOUND = {
    CHAT: {"max_tokens": PROMPT},
    RESPONSES: {"max_output_tokens": PROMPT},
    MESSAGES: {"max_tokens": PROMPT},
    GENERATE: {"generationConfig": {"maxOutputTokens": PROMPT}},
}


def leak_of(family):
    """Return a leaking vendor's answer: its error contains the key, the address and the prompt."""
    said = f"{UPSTREAM_KEYS[0]} at http://{LEAKY_HOST}/v1 may not ask: {ECHOED}"
    error = {"error": {"message": said, "type": "server_error", "code": UPSTREAM_KEYS[1]}}
    return answer_of(500 if family == CHAT else 401, error)


def content(vendor, closed_port, leaky):
    channels, closed = [], f"http://127.0.0.1:{closed_port}"
    for family in ALL:
        channels += [
            channel(
                f"{family}-leaky", family, leaky[family].url, {LEAKY: LEAKY}, keys=UPSTREAM_KEYS
            ),
            channel(f"{family}-closed", family, closed, {"dead": "dead"}, keys=UPSTREAM_KEYS),
        ]
        channels += [
            channel(f"{family}-{number}{model.removeprefix(MODEL)}", family, vendor.url,
                    {model: MODEL}, keys=[key], priority=number)
            for number, key in enumerate(UPSTREAM_KEYS)
            for model in MODELS
        ]  # fmt: skip
    made = document([*MODELS, LEAKY, "dead"], channels)
    made["user"][0]["password"] = PASSWORD
    made["key"] = [
        {"user": "owner", "name": name, "group": "all", "secret": secret}
        for name, secret in (("main", CLIENT_KEY), ("off", OTHER_KEY))
    ]
    return made


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    """Yield a gateway after all kinds of calls and failures, stopped, and the ids of the calls."""
    folder = tmp_path_factory.mktemp("talkative") / "node"
    with contextlib.ExitStack() as stack:
        vendor = stack.enter_context(ScriptedUpstream())
        closed = stack.enter_context(socket.socket())
        closed.bind(("127.0.0.1", 0))
        leaky = {family: stack.enter_context(RawUpstream(leak_of(family))) for family in ALL}
        gateway = Gateway(folder, SETTINGS)
        try:
            gateway.apply(content(vendor, closed.getsockname()[1], leaky))
            keys = json.loads(gateway.run("key", "list", "--json"))
            gateway.run("key", "disable", next(k["id"] for k in keys if k["name"] == "off"))
            gateway.start()
            calls = everything(gateway)
            operate(gateway)
            assert gateway.stop() == 0
            gateway.start()  # the files of the journal and the database exist too
            with long_stream(gateway, RESPONSES):
                gateway.kill()
            gateway.start()
            assert wait_until(lambda: lost(gateway), 10)
            yield gateway, calls
        finally:
            gateway.close()


def lost(gateway):
    return [record for record in gateway.usage() if record["outcome"] == "gateway_lost"]


def long_stream(gateway, family):
    body = ask(family, MODEL, f"[[demo ms=50 text={ANSWER} bytes=1]] {PROMPT}", stream=True)
    connection = Connection(gateway.port)
    path = path_of(family, MODEL, stream=True)
    connection.request("POST", path, credentials(family, CLIENT_KEY), body)
    connection.read_head()
    connection.read_chunk()
    return connection


def body_of(family, script, model=MODEL, **more):
    prompt = f"[[demo {script} ms=0 text={ANSWER}]] {PROMPT}"
    noted = {"labels" if family == GENERATE else "metadata": {"user_id": TOOL}}
    return ask(family, model, prompt, **noted, **more)


def headers_of(family):
    return {**credentials(family, CLIENT_KEY), "Cookie": COOKIE}


def post(gateway, family, body, headers=None, model=MODEL, query=""):
    """Make one call; plain unless its body asks for a stream."""
    path = path_of(family, model) + query
    return exchange(gateway.port, "POST", path, headers or headers_of(family), body)


def scripted(gateway, family, words, stream):
    model = MODELS[1 + SCRIPTS.index(words)]
    more = {"stream": True} if stream and family != GENERATE else {}
    body = body_of(family, words, model, **more)
    path = path_of(family, model, stream)
    return exchange(gateway.port, "POST", path, headers_of(family), body)


def everything(gateway):
    """Make all kinds of calls; return how many were answered."""
    answered = shown = 0
    turns = itertools.cycle(ALL)
    calls = [(next(turns), words, flag) for flag in (True, False) for words in SCRIPTS]
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        leaving = [pool.submit(leave, gateway, family) for family in (MESSAGES, GENERATE)]
        for answer in pool.map(lambda call: scripted(gateway, *call), calls):
            assert not any(key.encode() in answer.body for key in (CLIENT_KEY, *UPSTREAM_KEYS))
            answered += 1
            shown += ANSWER.encode() in answer.body
        for left in leaving:
            left.result()
    for family in ALL:
        refused(gateway, family)
    in_the_query(gateway)
    post(gateway, MESSAGES, body_of(MESSAGES, ""), {"x-api-key": CLIENT_KEY})
    broken_heads(gateway)
    assert shown > len(ALL), "what must not be logged was not even said"
    return answered


def refused(gateway, family):
    """Make calls that the gateway refuses, each for another reason."""
    headers = headers_of(family)
    for bad in bad_bodies(family):
        post(gateway, family, bad)
    post(gateway, family, body_of(family, ""), model="no-such-model")
    for secret in (OTHER_KEY, WRONG_KEY):
        post(gateway, family, body_of(family, ""), credentials(family, secret))
    post(gateway, family, body_of(family, ""), {"Authorization": CLIENT_KEY})
    leaking = ask(family, LEAKY, f"Say {ECHOED}.")
    assert ECHOED.encode() not in post(gateway, family, leaking, model=LEAKY).body
    dead = body_of(family, "") | ({} if family == GENERATE else {"model": "dead"})
    post(gateway, family, dead, model="dead")
    # the key's owner may see a wrong path, never its query
    wrong = f"/v1/no-such-endpoint?key={CLIENT_KEY}&said={PROMPT}"
    exchange(gateway.port, "POST", wrong, headers, b"{}")
    exchange(gateway.port, "GET", f"/v1/models?key={CLIENT_KEY}", headers)


def in_the_query(gateway):
    """Send keys in the query, where one family has them: good, wrong and useless ones."""
    body = body_of(GENERATE, "")
    for key, status in ((CLIENT_KEY, 200), (WRONG_KEY, 401)):
        path = path_of(GENERATE, MODEL, stream=True) + f"&key={key}"
        assert exchange(gateway.port, "POST", path, {}, body).status == status
        exchange(gateway.port, "GET", f"/v1beta/models?key={key}")
        exchange(gateway.port, "POST", f"/v1beta/{MODEL}?key={key}", {}, body)
    post(gateway, CHAT, body_of(CHAT, ""), query=f"?key={WRONG_KEY}")


def bad_bodies(family):
    whole = json.dumps(body_of(family, "")).encode()
    field = CONVERSATION[family].encode()
    return (
        whole[:-1],
        whole.replace(b'"%b"' % field, b'"%b": "x", "%b"' % (field, field)),
        whole.replace(MODEL.encode(), b"no-such-model"),
        b"\xff" + whole,
        b"[" * 100_000 + whole,
        json.dumps(body_of(family, "") | BOUND[family]).encode(),
        json.dumps({**body_of(family, ""), field.decode(): PROMPT}).encode(),
        json.dumps({**body_of(family, ""), "stream": [PROMPT]}).encode(),
    )


def leave(gateway, family):
    """Disconnect within the body, before the response head, and within a stream."""
    headers = headers_of(family)
    body = json.dumps(body_of(family, "")).encode()
    path = path_of(family, MODEL)
    with Connection(gateway.port) as connection:
        connection.send(encode_head("POST", path, headers, body) + body[:-5])
    for script in ("first_ms=5000", "slow_body"):
        with Connection(gateway.port) as connection:
            connection.request("POST", path, headers, body_of(family, script))
            time.sleep(0.1)
    with Connection(gateway.port) as connection:
        flood = ask(family, MODEL, f"[[demo flood=64 ms=0]] {PROMPT}", stream=True)
        connection.request("POST", path_of(family, MODEL, stream=True), headers, flood)
        connection.read_head()
        connection.reset()
    with Connection(gateway.port) as connection:  # a body that does not come in time
        connection.send(encode_head("POST", path, headers, body) + body[:-5])
        connection.read()


def broken_heads(gateway):
    line = (
        f"POST {path_of(CHAT, MODEL)} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {CLIENT_KEY}\r\n"
    )
    for rest in ("Content-Length: x\r\n\r\n", "no colon\r\n\r\n", "X: \x00\r\n\r\n"):
        with Connection(gateway.port) as connection, contextlib.suppress(ConnectionError):
            connection.send(line.encode() + rest.encode() + PROMPT.encode())
            connection.until_closed()


def operate(gateway):
    """Run commands that use keys and channels, right and wrong ones."""
    for family in ALL:
        gateway.run("channel", "test", f"{family}-0")
    for line in ("export", "key list", "channel list", "usage export --format csv"):
        gateway.run(*line.split())
    gateway.run("client-config", "curl", "--key", CLIENT_KEY)
    twice = {"key": [{"user": "owner", "name": "again", "group": "all", "secret": CLIENT_KEY}]}
    gateway.run("apply", "-", stdin=json.dumps(twice), code=1)
    wrong = {"channel": [{"name": "wrong", "keys": [UPSTREAM_KEYS[0]], "vendr": "demo"}]}
    gateway.run("apply", "-", stdin=json.dumps(wrong), code=1)


def test_the_calls_were_made_and_logged(node):
    gateway, answered = node
    assert answered == 2 * len(SCRIPTS)
    log = gateway.log()
    assert log.count('"event":"call"') >= answered
    outcomes = {record["outcome"] for record in gateway.usage()}
    assert outcomes >= {"ok", "refused", "upstream_error", "upstream_truncated", "timeout",
                        "client_gone", "gateway_lost"}  # fmt: skip


def test_no_secret_is_in_the_log(node):
    """The log does not have what a vendor leaks either."""
    gateway, _ = node
    lines = gateway.log().splitlines()
    assert sum("channel fails: channel=chat_completions-leaky" in line for line in lines) == 1
    leaks = {
        word: line for line in lines for word in (*SECRETS, ECHOED, LEAKY_HOST) if word in line
    }
    assert leaks == {} and "Traceback" not in gateway.log()


def test_details_of_attempts_hold_no_key_and_no_address(node):
    gateway, _ = node
    records = [record for record in gateway.usage() if record["model"] == LEAKY]
    details = [one["detail"] for record in records for one in record["attempts"]]
    assert len(details) >= len(ALL)
    for detail in details:
        assert detail.startswith("*** at *** may not ask") and detail.endswith("(***)"), detail


def test_no_secret_is_in_a_file(node):
    gateway, _ = node
    files = [path for path in gateway.folder.rglob("*") if path.is_file()]
    assert {path.suffix for path in files} >= {".db", ".toml", ".log"}
    holders = [
        (path.name, secret)
        for path in files
        for secret in SECRETS
        if path.name not in ALLOWED_FILES and secret.encode() in path.read_bytes()
    ]
    assert holders == []
    # Nobody else may read the operator's secrets.
    assert (gateway.folder / "secrets.toml").stat().st_mode & 0o777 == 0o600
