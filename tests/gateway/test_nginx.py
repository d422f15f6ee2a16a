"""Two nodes behind nginx, with the product's sample configuration.

Only ports, names and paths of conf/nginx.conf are replaced. The nodes are started as its comment
says: one gateway.toml, the second one with --set. Each client here has a source address of its own
(127.0.0.N), so that tests can see the address being passed on.
"""

import contextlib
import http.client
import itertools
import json
import socket
import ssl
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.client import wait_until
from tests.support.documents import channel
from tests.support.documents import document as usual_document
from tests.support.gateway import HOST, Gateway
from tests.support.nginx import Nginx, product_configuration
from tests.support.ports import free_port
from tests.support.programs import program
from tests.support.upstream import ScriptedUpstream

TIMEOUT_S = 20
# The vendor sends an event every EVENT_MS. If the interval between two events differs from that by
# more than PROMPT_MS, something has held one of them back.
EVENT_MS = 100
PROMPT_MS = 80
LEAVES_WITHIN_MS = 500
LIMIT_BYTES = 1 << 20
LARGE_BODIES = 20
PATHS = {"chat_completions": "/v1/chat/completions", "messages": "/v1/messages"}
# Paths where nginx itself must answer in the shape of generate_content.
GENERATE_PATHS = [
    "/v1beta/models/tea:generateContent",
    "/v1/models/tea:countTokens",
    "/v1/models/acme/tea-1:streamGenerateContent?alt=sse",
    "/v1beta/models",
]


def document(upstream_url: str) -> dict:
    models, key = {"tea": "tea", "acme/tea-1": "tea"}, {"user": "alice", "group": "all"}
    channels = [channel(f, f, upstream_url, models) for f in PATHS]
    heard = channel("heard", "chat_completions", upstream_url, {"hear": "up"})
    channels.append({**heard, "vendor": "openai-compatible"})
    made = usual_document([*models, "hear"], channels)
    made["user"] = [{"name": "alice", "balance": "1000"}]
    return {**made, "key": [{**key, "name": "anywhere"}]}


class Site:
    """The vendor, two nodes on one store, and nginx in front of them."""

    def __init__(self, folder: Path) -> None:
        program("nginx")
        self.upstream = ScriptedUpstream()
        (folder / "node").mkdir()
        (folder / "nginx").mkdir()
        first = Gateway(
            folder / "node",
            {"server.trusted_proxies": '["127.0.0.1/32"]', "server.max_body_bytes": LIMIT_BYTES},
        )
        self.nodes = [first, first.sibling("second")]
        made = first.apply(document(self.upstream.url))["keys"]
        self.keys = {key["name"]: key["secret"] for key in made}
        self.port = free_port()
        self.nginx = Nginx(
            folder / "nginx",
            self.port,
            product_configuration(folder / "nginx", self.port, self.nodes),
        )
        for node in self.nodes:
            node.start()

    def close(self) -> None:
        self.nginx.close()
        for node in self.nodes:
            node.close()
        self.upstream.close()

    @contextlib.contextmanager
    def sent(self, path, body=None, method="POST", source="127.0.0.1", port=None, **headers):
        """Open a connection to nginx, or to `port` in plain text, and send a request."""
        how = {"timeout": TIMEOUT_S, "source_address": (source, 0)}
        if port is not None:
            connection = http.client.HTTPConnection(HOST, port, **how)
        else:
            context = ssl._create_unverified_context()
            connection = http.client.HTTPSConnection(HOST, self.port, context=context, **how)
        headers = {name.replace("_", "-"): value for name, value in headers.items()}
        headers.setdefault("Authorization", f"Bearer {self.keys['anywhere']}")
        data = json.dumps(body).encode() if isinstance(body, dict) else body
        if data is not None:
            headers.setdefault("Content-Type", "application/json")
        try:
            connection.request(method, path, body=data, headers=headers)
            yield connection
        finally:
            connection.close()

    @contextlib.contextmanager
    def ask(self, *args, **options):
        """Send a request; return the answer, still unread."""
        with self.sent(*args, **options) as connection:
            yield connection.getresponse()

    def answer(self, path, body=None, **options):
        """Return (status, headers, decoded body) of a whole answer."""
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
    """Return a request for a stream with an event every EVENT_MS, all of which reach the client."""
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
    """Read a paced stream by lines and check that each event came in its time, none late and no
    two together. Return the last line."""
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


def test_events_are_prompt(site):
    with site.ask(PATHS["messages"], paced("messages")) as answer:
        assert answer.status == 200
        check_prompt(answer)


def test_events_are_prompt_over_http2(site):
    curl = program("curl")
    body = json.dumps(paced("chat_completions"))
    argv = [curl, "-skN", "--http2", "-w", "%{http_version}", "-d", body]
    argv += ["-H", f"Authorization: Bearer {site.keys['anywhere']}"]
    argv += ["-H", "Content-Type: application/json"]
    with subprocess.Popen(
        [*argv, f"https://{HOST}:{site.port}{PATHS['chat_completions']}"], stdout=subprocess.PIPE
    ) as shell:
        assert shell.stdout is not None
        last = check_prompt(shell.stdout)
    assert last == b"2", "curl did not speak HTTP/2"


def test_an_nginx_nobody_tuned_is_prompt_too(site, tmp_path):
    """All defaults: HTTP/1.0 to the gateway, buffering on. X-Accel-Buffering: no keeps it
    prompt."""
    port = free_port()
    target = f"http://{HOST}:{site.nodes[0].port}"
    server = f"server {{ listen {HOST}:{port}; location / {{ proxy_pass {target}; }} }}"
    nginx = Nginx(tmp_path, port, server)
    try:
        with site.ask(PATHS["messages"], paced("messages"), port=port) as answer:
            assert answer.status == 200
            check_prompt(answer)
    finally:
        nginx.close()


def entry_of(site, word):
    """Return the one request with `word` that reached the vendor."""
    (entry,) = [entry for entry in site.upstream.log() if word in entry["body"]]
    return entry


def test_a_client_that_leaves_closes_the_upstream(site):
    body = chat("leaving [[demo ms=50 chunks=2000]]", stream=True)
    with site.ask(PATHS["chat_completions"], body) as answer:
        call_id = answer.headers["x-request-id"]
        answer.readline()
        since_ms = time.time() * 1000
    assert gone_at_ms(site, "leaving") - since_ms < LEAVES_WITHIN_MS
    assert site.record({"x-request-id": call_id})["outcome"] == "client_gone"


def gone_at_ms(site, word):
    return wait_until(lambda: entry_of(site, word)["gone_at_ms"])


# ---- what is passed through ----------------------------------------------------------------------


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


def test_paths_pass_byte_for_byte(site):
    status, _, model = site.answer("/v1/models/acme%2Ftea-1", method="GET")
    assert (status, model["id"]) == (200, "acme/tea-1")
    status, _, body = site.answer("/v1//messages", message("hello"))
    assert (status, body["error"]["type"]) == (404, "not_found_error")
    assert site.answer("/", method="HEAD")[0] == 200
    wanted = {name: value for name, value in chat("hello").items() if name != "stream"}
    status, _, counted = site.answer("/v1/messages/count_tokens?beta=true", wanted)
    assert (status, list(counted)) == (200, ["input_tokens"])


def test_the_log_names_calls_and_no_keys(site):
    _, headers, _ = site.answer(f"/v1/models?key={site.keys['anywhere']}", method="GET")
    path = site.nginx.folder / "sluice.log"
    assert wait_until(lambda: headers["x-request-id"] in path.read_text())
    assert site.keys["anywhere"] not in path.read_text()


# ---- bodies that are too large, refusals ---------------------------------------------------------


@pytest.mark.parametrize(
    ("family", "path"), [*PATHS.items(), *(("generate_content", path) for path in GENERATE_PATHS)]
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
        body = json.loads(answer.read())
    assert answer.status == 413
    assert answer.headers["Content-Type"] == "application/json"
    check_too_large(body, family)


def check_too_large(body, family):
    if family == "messages":
        assert (body["type"], body["error"]["type"]) == ("error", "request_too_large")
    elif family == "generate_content":
        error = body["error"]
        assert list(error) == ["code", "message", "status"]
        assert (error["code"], error["status"]) == (413, "INVALID_ARGUMENT")
    else:
        assert body["error"]["code"] == "request_too_large"


@FAMILIES
def test_a_body_too_large_for_the_gateway(site, family):
    """If the gateway answered too early, nginx would turn the answer into a 502."""
    body = json.dumps(BODIES[family]("x" * 3 * LIMIT_BYTES)).encode()
    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: site.answer(PATHS[family], body), range(LARGE_BODIES)))
    assert [status for status, _, _ in answers] == [413] * LARGE_BODIES
    for _, headers, body in answers:
        check_too_large(body, family)
        assert "1 MiB" in body["error"]["message"], "these are not the gateway's own words"
        assert headers["x-request-id"]


# ---- nodes that stop and start -------------------------------------------------------------------


def test_a_form_larger_than_other_bodies_goes_on_as_it_arrives(site):
    size = 66 << 20  # more than nginx accepts elsewhere
    head, mark = '--b\r\nContent-Disposition: form-data; name="{}"', b"\r\n--b--\r\n"
    parts = head.format("model") + "\r\n\r\nhear\r\n" + head.format("file")
    body = parts.encode() + b'; filename="a.wav"\r\n\r\n' + bytes(size) + mark
    kind = {"Content_Type": "multipart/form-data; boundary=b"}
    status, headers, answer = site.answer("/v1/audio/transcriptions", body, **kind)
    assert (status, answer["text"]) == (200, f"heard {size} bytes")
    assert site.record(headers)["outcome"] == "ok"


def test_one_node_is_dead(site):
    def status():
        return site.answer(PATHS["chat_completions"], chat("hello"))[0]

    site.nodes[0].kill()
    try:
        status()  # may use a connection that nginx has kept: a call already sent is not repeated
        assert [status() for _ in range(6)] == [200] * 6
    finally:
        site.nodes[0].start()


def test_all_nodes_are_dead(site):
    for node in site.nodes:
        node.kill()
    google, anthropic = {"x_goog_api_key": "k"}, {"anthropic_version": "2023-06-01"}
    openai = ["/v1/responses", "/v1/models/tea", "/v1/models"]
    cases = [
        (PATHS["chat_completions"], chat("hello"), {}, check_openai_is_down),
        (PATHS["messages"], message("hello"), {}, check_anthropic_is_down),
        ("/v1/models", None, {"method": "GET", **anthropic}, check_anthropic_is_down),
        ("/v1/models", {"contents": []}, google, check_google_is_down),
        *((path, {"contents": []}, {}, check_google_is_down) for path in GENERATE_PATHS),
        *((path, None, {"method": "GET"}, check_openai_is_down) for path in openai),
    ]
    try:
        for path, body, options, check_error in cases:
            status, headers, answer = site.answer(path, body, **options)
            assert (status, headers["retry-after"]) == (503, "2"), path
            assert headers["content-type"] == "application/json"
            check_error(answer)
    finally:
        for node in site.nodes:
            node.start()
    assert site.answer(PATHS["messages"], message("hello"))[0] == 200


def check_openai_is_down(answer):
    assert (answer["error"]["type"], answer["error"]["code"]) == ("server_error", "unavailable")


def check_anthropic_is_down(answer):
    assert (answer["type"], answer["error"]["type"]) == ("error", "api_error")


def check_google_is_down(answer):
    error = answer["error"]
    assert list(error) == ["code", "message", "status"]
    assert (error["code"], error["status"]) == (503, "UNAVAILABLE")
