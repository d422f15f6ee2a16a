"""Two nodes behind nginx, with the configuration that comes with the product.

Only ports, names and paths of conf/nginx.conf are replaced. The nodes are started as its comment
says: one gateway.toml, the second one with --set. A client of this file comes from an address of
its own (127.0.0.N), so that the address can be seen to travel.
"""

import contextlib
import copy
import http.client
import itertools
import json
import queue
import socket
import ssl
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.gateway import HOST, Gateway
from tests.support.nginx import Nginx, product_configuration, program
from tests.support.ports import free_port
from tests.support.upstream import ScriptedUpstream

TIMEOUT_S = 20
# The vendor sends an event each EVENT_MS; one that comes PROMPT_MS later or earlier than that after
# the one before has been held back, or the other has.
EVENT_MS = 100
PROMPT_MS = 80
LEAVES_WITHIN_MS = 500
LIMIT_BYTES = 1 << 20
LARGE_BODIES = 20
CALLERS = 16
CALLS = 500
PRICE = {"input": "1.00", "output": "4.00"}
PATHS = {"chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
# Where nginx itself has to answer in the shape of generate_content.
GENERATE_PATHS = [
    "/v1beta/models/tea:generateContent",
    "/v1/models/tea:countTokens",
    "/v1/models/acme/tea-1:streamGenerateContent?alt=sse",
    "/v1beta/models",
]


def document(upstream_url: str) -> dict:
    vendors = {"chat_completions": "openai", "messages": "anthropic"}
    key = {"user": "alice", "group": "default"}
    return {
        "model": [{"name": name, "price": PRICE} for name in ("tea", "acme/tea-1")],
        "group": [{"name": "default"}],
        "channel": [
            {
                "name": family,
                "vendor": vendor,
                "family": family,
                "base_url": upstream_url,
                "keys": ["sk-of-the-operator"],
                "groups": ["default"],
                "models": {"tea": "tea", "acme/tea-1": "tea"},
            }
            for family, vendor in vendors.items()
        ],
        "user": [{"name": "alice", "balance": "1000"}],
        "key": [
            {**key, "name": "anywhere"},
            {**key, "name": "narrow", "networks": ["127.0.0.2/32"]},
        ],
    }


class Site:
    """The vendor, two nodes on one store, and nginx before them."""

    def __init__(self, folder: Path) -> None:
        program("nginx")
        self.upstream = ScriptedUpstream()
        (folder / "node").mkdir()
        (folder / "nginx").mkdir()
        first = Gateway(
            folder / "node",
            {
                "server.trusted_proxies": '["127.0.0.1/32"]',
                "server.max_body_bytes": LIMIT_BYTES,
            },
        )
        second = copy.copy(first)
        second.port, second.ops_port = free_port(), free_port()
        self.nodes = [first, second]
        made = first.apply(document(self.upstream.url))["keys"]
        self.keys = {key["name"]: key["secret"] for key in made}
        self.port = free_port()
        self.nginx = Nginx(
            folder / "nginx",
            self.port,
            product_configuration(folder / "nginx", self.port, self.nodes),
        )
        for number in range(2):
            self.start(number)

    def start(self, number: int) -> None:
        node = self.nodes[number]
        own = {"server.port": node.port, "ops.port": node.ops_port, "journal.dir": "journal-2"}
        flags = [part for name, value in own.items() for part in ("--set", f"{name}={value}")]
        node.start(*(flags if number else ()))

    def close(self) -> None:
        self.nginx.close()
        for node in self.nodes:
            node.close()
        self.upstream.close()

    @contextlib.contextmanager
    def ask(self, path, body=None, method="POST", source="127.0.0.1", **headers):
        """The answer of nginx, not read yet."""
        context = ssl._create_unverified_context()
        connection = http.client.HTTPSConnection(
            HOST, self.port, timeout=TIMEOUT_S, context=context, source_address=(source, 0)
        )
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers.setdefault("Authorization", f"Bearer {self.keys['anywhere']}")
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=data, headers=headers)
            yield connection.getresponse()
        finally:
            connection.close()

    def answer(self, path, body=None, **options):
        """(status, headers, decoded body) of a whole answer."""
        with self.ask(path, body, **options) as answer:
            headers = {name.lower(): value for name, value in answer.getheaders()}
            text = answer.read()
            return answer.status, headers, json.loads(text) if text else None

    def record(self, headers) -> dict:
        return self.nodes[0].record(headers["x-request-id"])


def chat(text, stream=False, model="tea"):
    return {"model": model, "stream": stream, "messages": [{"role": "user", "content": text}]}


def message(text, stream=False):
    return {**chat(text, stream), "max_tokens": 500}


def paced(family):
    """A request for a stream with an event each EVENT_MS, all of which come to the client."""
    words = f"[[demo ms={EVENT_MS} chunks=8]]"
    if family == "messages":
        return message(words, stream=True)
    return {**chat(words, stream=True), "stream_options": {"include_usage": True}}


BODIES = {"chat_completions": chat, "messages": message}
FAMILIES = pytest.mark.parametrize("family", PATHS)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    made = Site(tmp_path_factory.mktemp("site"))
    yield made
    made.close()


def check_prompt(lines) -> bytes:
    """Reads a paced stream line by line: each event came in its time, none late and none together
    with another. The last line."""
    at, last = [], b""
    for line in lines:
        if line.startswith(b"data:"):
            at.append(time.monotonic() * 1000)
        last = line
    assert len(at) > 8
    steps_ms = [round(after - before) for before, after in itertools.pairwise(at)]
    assert max(steps_ms) < EVENT_MS + PROMPT_MS, steps_ms
    assert min(steps_ms) > EVENT_MS - PROMPT_MS, f"held back, then sent at once: {steps_ms}"
    return last


# ---- streams -------------------------------------------------------------------------------------


@FAMILIES
def test_events_are_prompt(site, family):
    with site.ask(PATHS[family], paced(family)) as answer:
        assert answer.status == 200
        check_prompt(answer)


def test_events_are_prompt_over_http2(site):
    curl = program("curl")
    body = json.dumps(paced("chat_completions"))
    argv = [curl, "-skN", "--http2", "-w", "%{http_version}", "-d", body]
    argv += ["-H", f"Authorization: Bearer {site.keys['anywhere']}"]
    argv += ["-H", "Content-Type: application/json"]
    with subprocess.Popen(
        [*argv, f"https://{HOST}:{site.port}{PATHS['chat_completions']}"],
        stdout=subprocess.PIPE,
    ) as shell:
        assert shell.stdout is not None
        last = check_prompt(shell.stdout)
    assert last == b"2", "curl did not speak HTTP/2"


@FAMILIES
def test_an_nginx_nobody_tuned_is_prompt_too(site, tmp_path, family):
    """All defaults: HTTP/1.0 to the gateway, buffering on. X-Accel-Buffering: no is what helps."""
    port = free_port()
    target = f"http://{HOST}:{site.nodes[0].port}"
    server = f"server {{ listen {HOST}:{port}; location / {{ proxy_pass {target}; }} }}"
    nginx = Nginx(tmp_path, port, server)
    try:
        connection = http.client.HTTPConnection(HOST, port, timeout=TIMEOUT_S)
        with contextlib.closing(connection):
            headers = {
                "Authorization": f"Bearer {site.keys['anywhere']}",
                "Content-Type": "application/json",
            }
            connection.request("POST", PATHS[family], json.dumps(paced(family)), headers)
            answer = connection.getresponse()
            assert answer.status == 200
            check_prompt(answer)
    finally:
        nginx.close()


def test_a_slow_client_makes_the_vendor_wait(site):
    """nginx takes no more than it can pass on: 128 MiB, of which the client reads a few bytes."""
    with site.ask(PATHS["chat_completions"], chat("brim-over [[demo flood=128]]", True)) as answer:
        answer.read(1000)
        sent, before = 0, -1
        while sent != before:
            time.sleep(0.5)
            sent, before = entry_of(site, "brim-over")["chunks_sent"], sent
        assert not entry_of(site, "brim-over")["finished"]
    # the kernel's buffers of four sockets stand between
    assert 0 < sent * 4096 < 32 << 20, "somebody swallowed the stream"


def entry_of(site, word):
    """The one request with `word` that reached the vendor."""
    (entry,) = [entry for entry in site.upstream.log() if word in entry["body"]]
    return entry


@FAMILIES
def test_a_client_that_leaves_closes_the_upstream(site, family):
    word = f"leaving-{family}"
    body = BODIES[family](f"{word} [[demo ms=50 chunks=2000]]", stream=True)
    with site.ask(PATHS[family], body) as answer:
        headers = {name.lower(): value for name, value in answer.getheaders()}
        answer.readline()
        since_ms = time.time() * 1000
    assert gone_at_ms(site, word) - since_ms < LEAVES_WITHIN_MS
    assert site.record(headers)["outcome"] == "client_gone"


def test_a_client_that_leaves_before_the_first_byte(site):
    body = chat("early-bird [[demo stall_before_head]]")
    connection = http.client.HTTPSConnection(
        HOST, site.port, context=ssl._create_unverified_context()
    )
    headers = {"Authorization": f"Bearer {site.keys['anywhere']}"}
    headers["Content-Type"] = "application/json"
    connection.request("POST", PATHS["chat_completions"], json.dumps(body), headers)
    wait_for(lambda: any("early-bird" in e["body"] for e in site.upstream.log()))
    since_ms = time.time() * 1000
    connection.close()
    assert gone_at_ms(site, "early-bird") - since_ms < LEAVES_WITHIN_MS


def gone_at_ms(site, word):
    wait_for(lambda: entry_of(site, word)["gone_at_ms"] is not None)
    return entry_of(site, word)["gone_at_ms"]


def wait_for(true, timeout_s=5):
    deadline = time.monotonic() + timeout_s
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@FAMILIES
def test_a_broken_stream_ends_in_an_error_event(site, family):
    body = BODIES[family]("[[demo chunks=20 cut=6]]", stream=True)
    with site.ask(PATHS[family], body) as answer:
        assert answer.status == 200
        last = answer.read().decode().rstrip().splitlines()[-1]
    assert "error" in json.loads(last.removeprefix("data: "))


# ---- what travels through ------------------------------------------------------------------------


def test_the_address_of_the_client(site):
    status, headers, _ = site.answer(PATHS["chat_completions"], chat("hello"), source="127.0.0.2")
    assert status == 200
    assert site.record(headers)["client_ip"] == "127.0.0.2"
    invented = {"X_Forwarded_For": "198.51.100.7", "X_Real_IP": "198.51.100.8"}
    status, headers, _ = site.answer(
        PATHS["messages"], message("hello"), source="127.0.0.3", **invented
    )
    assert status == 200
    assert site.record(headers)["client_ip"] == "127.0.0.3"


def test_networks_of_a_key(site):
    narrow = {"Authorization": f"Bearer {site.keys['narrow']}"}
    path, body = PATHS["chat_completions"], chat("hello")
    assert site.answer(path, body, source="127.0.0.2", **narrow)[0] == 200
    status, _, told = site.answer(path, body, source="127.0.0.3", **narrow)
    assert (status, told["error"]["code"]) == (403, "ip_not_allowed")
    invented = {"X_Forwarded_For": "127.0.0.2"}
    assert site.answer(path, body, source="127.0.0.3", **narrow, **invented)[0] == 403


def test_who_is_no_trusted_proxy_is_not_believed(site):
    connection = http.client.HTTPConnection(
        HOST, site.nodes[0].port, timeout=TIMEOUT_S, source_address=("127.0.0.4", 0)
    )
    with contextlib.closing(connection):
        headers = {
            "Authorization": f"Bearer {site.keys['anywhere']}",
            "Content-Type": "application/json",
            "X-Forwarded-For": "198.51.100.7",
        }
        connection.request("POST", PATHS["chat_completions"], json.dumps(chat("hello")), headers)
        answer = connection.getresponse()
        answer.read()
    assert site.nodes[0].record(answer.headers["x-request-id"])["client_ip"] == "127.0.0.4"


def test_paths_pass_byte_for_byte(site):
    status, _, model = site.answer("/v1/models/acme%2Ftea-1", method="GET")
    assert (status, model["id"]) == (200, "acme/tea-1")
    status, _, told = site.answer("/v1//messages", message("hello"))
    assert (status, told["error"]["type"]) == (404, "not_found_error")
    assert site.answer("/", method="HEAD")[0] == 200
    wanted = {name: value for name, value in chat("hello").items() if name != "stream"}
    status, _, counted = site.answer("/v1/messages/count_tokens?beta=true", wanted)
    assert (status, list(counted)) == (200, ["input_tokens"])


def test_the_log_names_calls_and_no_keys(site):
    _, headers, _ = site.answer(f"/v1/models?key={site.keys['anywhere']}", method="GET")
    path = site.nginx.folder / "sluice.log"
    wait_for(lambda: headers["x-request-id"] in path.read_text())
    assert site.keys["anywhere"] not in path.read_text()


# ---- bodies that are too large, refusals ---------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "path"),
    [*PATHS.items(), *(("generate_content", path) for path in GENERATE_PATHS)],
)
def test_a_body_too_large_for_nginx(site, family, path):
    context = ssl._create_unverified_context()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: gateway.example\r\n"
        f"Content-Type: application/json\r\nContent-Length: {65 << 20}\r\n\r\n"
    )
    with (
        socket.create_connection((HOST, site.port)) as plain,
        context.wrap_socket(plain) as connection,
    ):
        connection.sendall(head.encode())
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        told = json.loads(answer.read())
    assert answer.status == 413
    assert answer.headers["Content-Type"] == "application/json"
    check_too_large(told, family)


def check_too_large(told, family):
    if family == "messages":
        assert (told["type"], told["error"]["type"]) == ("error", "request_too_large")
    elif family == "generate_content":
        error = told["error"]
        assert list(error) == ["code", "message", "status"]
        assert (error["code"], error["status"]) == (413, "INVALID_ARGUMENT")
    else:
        assert told["error"]["code"] == "request_too_large"


@FAMILIES
def test_a_body_too_large_for_the_gateway(site, family):
    """Answered too early, nginx would make a 502 of it."""
    body = json.dumps(BODIES[family]("x" * 3 * LIMIT_BYTES)).encode()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: site.answer(PATHS[family], body), range(LARGE_BODIES)))
    assert [status for status, _, _ in answers] == [413] * LARGE_BODIES
    for _, headers, told in answers:
        check_too_large(told, family)
        assert "1 MiB" in told["error"]["message"], "these are not the gateway's own words"
        assert headers["x-request-id"]


def test_refusals_of_large_bodies(site):
    body = json.dumps(chat("x" * (LIMIT_BYTES - 1000))).encode()
    stranger = {"Authorization": "Bearer a-key-nobody-made"}

    def ask(_):
        return site.answer(PATHS["chat_completions"], body, **stranger)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(LARGE_BODIES)))
    assert [status for status, _, _ in answers] == [401] * LARGE_BODIES
    assert {told["error"]["code"] for _, _, told in answers} == {"invalid_api_key"}


def test_errors_of_the_gateway_pass_as_they_are(site):
    status, headers, told = site.answer(
        PATHS["messages"], message("[[demo status=500]]"), x_api_key="unused"
    )
    assert (status, told["error"]["type"]) == (502, "api_error")
    assert told["request_id"] == headers["request-id"]
    assert "retry-after" not in headers


# ---- nodes that come and go ----------------------------------------------------------------------


class Load:
    """Callers that keep calling until `CALLS` are made; half of the calls are streams."""

    def __init__(self, site: Site) -> None:
        self._site = site
        self._numbers = queue.SimpleQueue()
        for number in range(CALLS):
            self._numbers.put(number)
        self.failed: list[str] = []
        self.ids: list[str] = []
        self._threads = [threading.Thread(target=self._run) for _ in range(CALLERS)]
        for thread in self._threads:
            thread.start()

    @property
    def left(self) -> int:
        return self._numbers.qsize()

    def _run(self) -> None:
        while True:
            try:
                number = self._numbers.get_nowait()
            except queue.Empty:
                return
            try:
                self.ids.append(self._call(number))
            except (OSError, http.client.HTTPException, AssertionError, KeyError) as error:
                self.failed.append(f"{number}: {error!r}")

    def _call(self, number: int) -> str:
        family = ("chat_completions", "messages")[number % 2]
        stream = number % 4 < 2
        words = f"call {number} [[demo {'ms=25 chunks=8' if stream else 'first_ms=250'}]]"
        body = BODIES[family](words, stream)
        with self._site.ask(PATHS[family], body) as answer:
            text = answer.read().decode()
            assert answer.status == 200, f"{answer.status} {text[:200]}"
        end = "data: [DONE]" if family == "chat_completions" else "event: message_stop"
        assert end in text if stream else "usage" in json.loads(text), text[-200:]
        return answer.headers["x-request-id"]

    def join(self) -> None:
        for thread in self._threads:
            thread.join(60)


def test_nodes_are_replaced_under_load_without_a_failed_call(site):
    load = Load(site)
    wait_for(lambda: load.left < CALLS - 2 * CALLERS)
    for number in (0, 1):
        node = site.nodes[number]
        assert node.stop() == 0
        assert load.left, "the calls were over too early for a proof"
        site.start(number)
        time.sleep(0.3)
    assert load.left, "the calls were over too early for a proof"
    load.join()
    assert load.failed == []
    wait_for(lambda: len(records_of(site, load.ids)) == CALLS, timeout_s=10)
    records = records_of(site, load.ids)
    assert {record["outcome"] for record in records} == {"ok"}
    assert len({record["node"] for record in records}) == 2
    assert len({record["id"] for record in records}) == CALLS


def records_of(site, ids):
    wanted = set(ids)
    return [record for record in site.nodes[0].usage() if record["id"] in wanted]


def test_one_node_is_dead(site):
    site.nodes[0].kill()
    try:
        for _ in range(6):
            status, _, body = site.answer(PATHS["chat_completions"], chat("hello"))
            assert status == 200, body
    finally:
        site.start(0)


def test_all_nodes_are_dead(site):
    for node in site.nodes:
        node.kill()
    try:
        status, headers, told = site.answer(PATHS["chat_completions"], chat("hello"))
        assert (status, headers["retry-after"]) == (503, "2")
        assert headers["content-type"] == "application/json"
        assert (told["error"]["type"], told["error"]["code"]) == ("server_error", "unavailable")
        status, headers, told = site.answer(PATHS["messages"], message("hello"))
        assert (status, headers["retry-after"]) == (503, "2")
        assert (told["type"], told["error"]["type"]) == ("error", "api_error")
        google, anthropic = {"x_goog_api_key": "k"}, {"anthropic_version": "2023-06-01"}
        for path, more in [*((path, {}) for path in GENERATE_PATHS), ("/v1/models", google)]:
            status, headers, told = site.answer(path, {"contents": []}, **more)
            assert (status, headers["retry-after"]) == (503, "2")
            assert headers["content-type"] == "application/json"
            error = told["error"]
            assert list(error) == ["code", "message", "status"]
            assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
        _, _, told = site.answer("/v1/models", method="GET", **anthropic)
        assert told["error"]["type"] == "api_error"
        for path in ("/v1/models", "/v1/responses", "/v1/models/tea"):
            _, _, told = site.answer(path, method="GET")
            assert told["error"]["code"] == "unavailable"
    finally:
        site.start(0)
        site.start(1)
    assert site.answer(PATHS["messages"], message("hello"))[0] == 200
