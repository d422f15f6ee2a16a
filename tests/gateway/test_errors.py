"""Every condition in every dialect, through real sockets: headers, texts, fail-over and record.

The matrix is `error_cells`; docs/errors.md must have exactly its cells. All cells run at once
before the first is checked, because many of them wait for a time-out.
"""

import contextlib
import json
import os
import re
import resource
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.client import Connection, encode_head, exchange, wait_until
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    PATHS,
    REFUSALS,
    RESPONSES,
    SECRET,
    ask,
    check_ids,
    check_refusal,
    check_stream_failure,
    credentials,
    path_of,
)
from tests.support.documents import PRICE, channel
from tests.support.error_cells import (
    ARRAY,
    ASIDE,
    CELLS,
    GOOD,
    LIMIT_BYTES,
    PUBLIC_URL,
    STREAM_CELLS,
    UNRECORDED,
)

ROOT = Path(__file__).resolve().parents[2]
SETTINGS = {
    "server.public_url": PUBLIC_URL,
    "server.max_body_bytes": LIMIT_BYTES,
    "server.body_timeout_s": 1,
    "upstream.connect_timeout_s": 3,
    "upstream.first_byte_timeout_s": 4,
    "upstream.idle_timeout_s": 2,
    "upstream.heartbeat_s": 0,
    "upstream.commit_after_s": 1,
    "routing.max_attempts": 2,
}
CALLS_AT_ONCE = 64
SECRETS = {
    name: f"sk-test-{name}-0123456789"
    for name in (
        *("disabled", "expired", "network", "poor", "subscriber", "busy", "plain"),
        *(f"{word}-{family}" for word in ("no", "of") for family in ALL),
    )
} | {"main": SECRET}
# A bug of the gateway where it reads an upstream's error.
BUG = """
from handlers.relay import attempts

read = attempts.read_upstream_error

def broken(status, headers, body):
    if b"a bug" in body:
        raise ZeroDivisionError("a bug of the test")
    return read(status, headers, body)

attempts.read_upstream_error = broken
"""


# ---- gateways ------------------------------------------------------------------------------------


def content(places, cells):
    """Return a document with two channels for each cell whose upstream fails, and a good model."""
    own = {cell.model: cell for cell in cells if cell.way.asked}
    channels = [
        channel(
            f"good-{family}",
            family,
            places["vendor"],
            {GOOD: "demo-small"},
            groups=["all", "plain"],
        )
        for family in ALL
    ]
    channels += [
        channel(f"aside-{f}", f, places["vendor"], {f"{ASIDE}-{f}": "demo-small"}, rpm=1)
        for f in ALL
    ]
    for model, cell in own.items():
        channels += [
            channel(f"{model}-{number}", cell.speaks, places[cell.way.place],
                    {model: "demo-small"}, priority=-number)
            for number in (1, 2)
        ]  # fmt: skip
    names = [GOOD, *(f"{ASIDE}-{family}" for family in ALL), *own]
    return {
        "model": [{"name": name, "price": PRICE} for name in names],
        "group": [
            {"name": "all"},
            {"name": "plain", "features": []},
            *({"name": f"no-{f}", "entries": [e for e in ALL if e != f]} for f in ALL),
        ],
        "channel": channels,
        "user": [
            {"name": "owner", "balance": "1000000"},
            {"name": "pauper"},
            {"name": "subscriber", "balance": "1000000", "order": "plan_only"},
        ],
        "plan": [{"name": "tiny", "quota": "0.000000001", "window": "month"}],
        "subscription": [{"user": "subscriber", "plan": "tiny"}],
        "key": [
            key("main"),
            key("disabled"),
            key("expired", expires_at="2020-01-01T00:00:00Z"),
            key("network", networks=["203.0.113.0/24"]),
            key("poor", user="pauper"),
            key("subscriber", user="subscriber"),
            key("busy", concurrency=1),
            key("plain", group="plain"),
            *(key(f"no-{family}", group=f"no-{family}") for family in ALL),
            *(key(f"of-{family}") for family in ALL),
        ],
    }


def key(name, user="owner", group="all", **more):
    return {"user": user, "name": name, "group": group, "secret": SECRETS[name], **more}


def cells_of(name):
    return [cell for cell in (*CELLS, *STREAM_CELLS) if cell.way.gateway == name]


@pytest.fixture(scope="module")
def usual(launch, places):
    """Return a gateway with short time-outs, a disabled key, a key whose slot a stream holds, and
    channels at their limits."""
    made = launch(content(places, cells_of("usual")), SETTINGS, shared=False)
    for family in ALL:
        body = ask(family, f"{ASIDE}-{family}")
        path = path_of(family, f"{ASIDE}-{family}")
        assert exchange(made.port, "POST", path, credentials(family), body).status == 200
    keys = json.loads(made.run("key", "list", "--json"))
    made.run("key", "disable", next(k["id"] for k in keys if k["name"] == "disabled"))
    headers = credentials(CHAT, SECRETS["disabled"])

    def known():
        body = ask(CHAT, GOOD)
        return exchange(made.port, "POST", PATHS[CHAT], headers, body).status == 401

    assert wait_until(known), "a change did not arrive"
    with Connection(made.port) as running:
        body = ask(CHAT, GOOD, "[[demo ms=500 chunks=2000]]", stream=True)
        running.request("POST", PATHS[CHAT], credentials(CHAT, SECRETS["busy"]), body)
        assert running.read_head().status == 200
        yield from playing(made, "usual")


@pytest.fixture(scope="module")
def buggy(launch, places, tmp_path_factory):
    """Return a gateway with a bug, injected by a file that Python loads before everything else."""
    folder = tmp_path_factory.mktemp("bug")
    (folder / "sitecustomize.py").write_text(BUG)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", os.pathsep.join((str(folder), str(ROOT))))
        made = launch(content(places, cells_of("buggy")), SETTINGS)
    yield from playing(made, "buggy")


def playing(gateway, name):
    """Yield played(cell), which returns (gateway, answer); all cells of the gateway run at the
    same time."""
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        running = {cell: pool.submit(play, gateway.port, cell) for cell in cells_of(name)}
        yield lambda cell: (gateway, running[cell].result())


def play(port, cell):
    with Connection(port) as connection:
        send(connection, cell)
        return connection.read(cell.way.method)


def send(connection, cell):
    way, family = cell.way, cell.speaks
    headers = {}
    if way.key:
        headers |= credentials(family, SECRETS.get(way.key, way.key))
    elif family == MESSAGES:
        headers["anthropic-version"] = "2023-06-01"
    path = way.path or path_of(family, cell.model, cell.stream, array=cell.family == ARRAY)
    body = None if way.method == "GET" else body_of(cell)
    connection.send(encode_head(way.method, path, {**headers, **way.headers}, body) + (body or b""))


def body_of(cell):
    way = cell.way
    if way.content is not None:
        return way.content
    prompt = f"[[demo {way.script}]]" if way.script else "Say something."
    body = {**ask(cell.speaks, cell.model, prompt, cell.stream), **way.changes}
    return json.dumps({name: value for name, value in body.items() if value is not ...}).encode()


@pytest.fixture(scope="module")
def ended(launch, places):
    """Return the answers and records of a gateway whose journal's disk is full for a while, and
    which is then drained while streams run."""
    gateway = launch(content(places, []), {**SETTINGS, "server.drain_timeout_s": 1}, follow=False)
    mine = cells_of("ending")
    answers = {}
    for family in ALL:  # loads keys and balance into memory
        assert is_served(gateway, family)
    with full_disk(gateway):
        for cell in mine:
            if not cell.stream:
                answers[cell] = play(gateway.port, cell)
    assert wait_until(lambda: all(is_served(gateway, family) for family in ALL))
    with contextlib.ExitStack() as stack:
        running = {
            cell: stack.enter_context(Connection(gateway.port)) for cell in mine if cell.stream
        }
        for cell, connection in running.items():
            send(connection, cell)
        answers |= {cell: connection.read_head() for cell, connection in running.items()}
        gateway.process.send_signal(signal.SIGTERM)
        for cell, connection in running.items():
            connection.read_body(answers[cell])
    assert gateway.process.wait(15) == 0
    records = {record["id"]: record for record in gateway.usage()}
    gateway.run("books", "verify")
    return {cell: (answer, records.get(answer.call_id)) for cell, answer in answers.items()}


def is_served(gateway, family):
    sent = credentials(family, SECRETS[f"of-{family}"])
    body = ask(family, GOOD)
    return exchange(gateway.port, "POST", path_of(family, GOOD), sent, body).status == 200


@contextlib.contextmanager
def full_disk(gateway):
    """Keep all processes of the gateway from writing to files, as on a full disk."""
    limits = {pid: resource.prlimit(pid, resource.RLIMIT_FSIZE) for pid in gateway.worker_pids()}
    for pid, (_, hard) in limits.items():
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        for pid, limit in limits.items():
            resource.prlimit(pid, resource.RLIMIT_FSIZE, limit)


# ---- results -------------------------------------------------------------------------------------


def seen(request, cell):
    """Return (answer, record) of a cell; the record is None if there is none."""
    if cell.way.gateway == "ending":
        return request.getfixturevalue("ended")[cell]
    gateway, answer = request.getfixturevalue(cell.way.gateway)(cell)
    if cell.number not in UNRECORDED:
        return answer, gateway.record(answer.call_id)
    # The journal is recorded in order: when this marker has a record, earlier calls have theirs
    # too.
    marker = exchange(gateway.port, "POST", PATHS[CHAT], credentials(), ask(CHAT, GOOD))
    gateway.record(marker.call_id)
    return answer, gateway.record(answer.call_id) if answer.call_id in gateway.tail else None


@pytest.mark.parametrize("cell", CELLS, ids=lambda cell: cell.label)
def test_a_condition_before_the_first_byte(cell, request):
    answer, record = seen(request, cell)
    true = {}
    if cell.number == "E09":
        true = {"retry_after": answer.headers["retry-after"]}  # decreases each second
        assert 30 < int(true["retry_after"]) <= 60
    message = check_refusal(answer, cell.family, cell.number, **true)
    check_words(cell, message)
    if cell.family in (CHAT, RESPONSES):
        assert answer.json["error"]["param"] == cell.way.param
    closes = cell.number in ("E15", "E36", "E39")
    assert (answer.headers.get("connection") == "close") is closes
    assert (record is None) is (cell.number in UNRECORDED)
    if record is not None:
        check_record(cell, record, answer.status)
        assert (record["cost"], record["charges"], record["usage_source"]) == ("0", [], "none")


@pytest.mark.parametrize("cell", STREAM_CELLS, ids=lambda cell: cell.label)
def test_a_condition_in_a_stream(cell, request):
    answer, record = seen(request, cell)
    if cell.family == ARRAY:
        message = check_failed_array(answer, cell.number)
    else:
        message = check_stream_failure(answer, cell.family, cell.number)
    check_words(cell, message)
    check_record(cell, record, 200)
    assert record["stream"] is True


def check_words(cell, message):
    """Check the whole message against the promised text, and that it shows neither address nor key
    of the upstream."""
    says = cell.way.says
    if says.startswith("re:"):
        assert re.fullmatch(says[3:], message), message
    else:
        assert message == says.format(model=cell.model, url=PUBLIC_URL)
    assert "127.0.0.1" not in message
    assert "sk-" not in message.replace("sk-slc-…", "")  # the caller's own key, shortened


# Outcomes that the record has as its code, instead of the code that the client received.
RECORDED_OUTCOMES = ("upstream_truncated", "drained")


def check_record(cell, record, status):
    way = cell.way
    assert (record["outcome"], record["status"]) == (way.outcome, status)
    code = way.outcome if way.outcome in RECORDED_OUTCOMES else REFUSALS[cell.number].code
    assert record["error_code"] == code and record["error_message"]
    endpoint = PATHS[cell.speaks]
    if cell.stream:
        endpoint = endpoint.replace(":generateContent", ":streamGenerateContent")
    assert (record["endpoint"], record["family"]) == (endpoint, cell.speaks)
    asked = [attempt["channel"] for attempt in record["attempts"]]
    if way.gateway == "ending":
        assert asked == ([f"good-{cell.speaks}"] if cell.stream else [])
    else:
        assert asked == [f"{cell.model}-{number + 1}" for number in range(way.asked)]


def check_failed_array(answer, number):
    """Check that a JSON array is complete and that its last element is just the error; return its
    message."""
    assert answer.status == 200 and answer.whole, (answer.head, answer.body)
    assert answer.headers["content-type"].startswith("application/json")
    check_ids(answer)
    elements = json.loads(answer.body)
    assert not any("error" in element for element in elements[:-1])
    assert list(elements[-1]) == ["error"]
    error = elements[-1]["error"]
    row = REFUSALS[number]
    in_stream = {"E24": (500, "INTERNAL"), "E30": (500, "INTERNAL"),
                 "E26": (503, "UNAVAILABLE"), "E29": (503, "UNAVAILABLE")}  # fmt: skip
    assert (error["code"], error["status"]) == in_stream.get(number, row.generate)
    return error["message"]


# ---- the matrix and the document -----------------------------------------------------------------


def test_the_matrix_has_every_cell_of_the_document_and_no_other():
    documented, in_stream = documented_cells((ROOT / "docs/errors.md").read_text())
    assert {(cell.number, cell.family) for cell in CELLS} == {
        cell for cell, reached in documented.items() if reached
    }
    assert {(cell.number, cell.speaks) for cell in STREAM_CELLS} == in_stream
    arrays = {cell.number for cell in STREAM_CELLS if cell.family == ARRAY}
    assert arrays == {number for number, family in in_stream if family == GENERATE}


def documented_cells(text):
    """Return ({(number, family): it is reached}, {(number, family) in a stream}) from
    docs/errors.md."""
    answers, in_stream, section = {}, set(), ""
    for line in text.splitlines():
        if line.startswith("## "):
            section = line[3:].split(" (")[0]
        number = re.search(r"\| (E\d\d)(?: \*not reached yet\*)? \|$", line)
        if section in ALL and number:
            assert (number[1], section) not in answers
            answers[number[1], section] = "not reached yet" not in line
        elif section == "Failures inside a stream" and re.match(r"\| E\d\d \|", line):
            in_stream |= {(line[2:5], family) for family in ALL}
    return answers, in_stream
