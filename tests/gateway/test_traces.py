"""Traces of calls: passed on, recorded, and exported as spans to a collector over OTLP/HTTP."""

import gzip
import http.server
import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.support.client import exchange, wait_until
from tests.support.dialects import CHAT, GENERATE, ask, credentials, path_of
from tests.support.documents import channel, document
from tests.support.gateway import ROOT

MODEL = "demo-small"
TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = {"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "vendor=1"}
SERVER, CLIENT = 2, 3
INFO = {"log.level": "info"}


class Collector:
    """A collector that receives OTLP over HTTP."""

    def __init__(self):
        self.spans, self.resources = [], []
        outer = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["content-length"]))
                if self.headers.get("content-encoding") == "gzip":
                    body = gzip.decompress(body)
                assert self.path == "/v1/traces"
                assert self.headers["content-type"] == "application/x-protobuf"
                outer.take(ExportTraceServiceRequest.FromString(body))
                self.send_response(200)
                self.send_header("content-length", "0")
                self.end_headers()

            def log_message(self, *_):
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def take(self, request):
        for resource in request.resource_spans:
            self.resources.append(values(resource.resource.attributes))
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def of_call(self, call_id, count):
        """Return the spans of one call, the server's first."""

        def found():
            own = [one for one in self.spans if values(one.attributes).get(ID) == call_id]
            return own + [one for one in self.spans if own and one.parent_span_id == own[0].span_id]

        assert wait_until(lambda: len(found()) == count, 10), found()
        return found()

    def close(self):
        self._server.shutdown()
        self._server.server_close()


ID = "sluice.request_id"


def values(attributes):
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


@pytest.fixture(scope="module")
def collector():
    made = Collector()
    yield made
    made.close()


def content(vendor):
    channels = [
        channel("second", CHAT, vendor.url, {MODEL: MODEL}),
        channel("first", CHAT, vendor.url, {MODEL: MODEL, "failing": "failing"}, priority=1),
        channel("gemini", GENERATE, vendor.url, {MODEL: MODEL}),
    ]
    return document([MODEL, "failing"], channels)


@pytest.fixture(scope="module")
def traced(launch, vendor, collector):
    """Return a gateway that exports."""
    return launch(content(vendor), {**INFO, "telemetry.otlp_endpoint": collector.url})


@pytest.fixture(scope="module")
def plain(launch, vendor):
    """Return a gateway that does not."""
    return launch(content(vendor), INFO)


def call(gateway, family=CHAT, prompt="hello-of-the-prompt", headers=None, **more):
    stream = more.get("stream", False)
    path, body = path_of(family, MODEL, stream), ask(family, MODEL, prompt, **more)
    answer = exchange(gateway.port, "POST", path, {**credentials(family), **(headers or {})}, body)
    return answer.call_id


def log_line(gateway, call_id):
    assert wait_until(lambda: call_id in gateway.log())
    [line] = [one for one in gateway.log().splitlines() if call_id in one]
    return json.loads(line)


def told(vendor):
    """Return the trace headers that the upstream received last."""
    headers = {name.lower(): value for name, value in vendor.log()[-1]["headers"].items()}
    return headers.get("traceparent"), headers.get("tracestate")


def test_off_the_clients_trace_is_passed_on_and_recorded(plain, vendor):
    call_id = call(plain, headers=PARENT)
    assert told(vendor) == (PARENT["traceparent"], PARENT["tracestate"])
    assert plain.record(call_id)["trace_id"] == TRACE
    assert log_line(plain, call_id)["trace_id"] == TRACE
    found = json.loads(plain.run("usage", "tail", "--trace-id", TRACE, "--json"))
    assert [one["id"] for one in found] == [call_id]
    assert TRACE in plain.run("usage", "show", call_id)
    head = plain.run("usage", "export", "--format", "csv").splitlines()[0]
    assert "trace_id" in head.split(",")


def test_a_call_is_two_spans_with_the_names_of_gen_ai(traced, vendor, collector):
    call_id = call(traced, headers=PARENT)
    server, client = collector.of_call(call_id, 2)
    assert (server.kind, client.kind) == (SERVER, CLIENT)
    assert server.trace_id.hex() == client.trace_id.hex() == TRACE
    assert server.parent_span_id.hex() == SPAN and client.parent_span_id == server.span_id
    assert told(vendor) == (f"00-{TRACE}-{client.span_id.hex()}-01", "vendor=1")
    assert server.name == client.name == f"chat {MODEL}"
    record = traced.record(call_id)
    expected = {
        "gen_ai.operation.name": "chat",
        "gen_ai.provider.name": "openai",
        "gen_ai.request.model": MODEL,
        "gen_ai.response.model": MODEL,
        "gen_ai.usage.input_tokens": record["input_tokens"],
        "gen_ai.usage.output_tokens": record["output_tokens"],
        "sluice.channel": "first",
        "http.response.status_code": 200,
    }
    for span in (server, client):
        attributes = values(span.attributes)
        assert attributes.items() >= expected.items()
        assert "error.type" not in attributes and span.status.code == 0
    assert server.start_time_unix_nano <= client.start_time_unix_nano + 2_000_000
    assert server.end_time_unix_nano - server.start_time_unix_nano < 60 * 10**9
    assert record["trace_id"] == TRACE == log_line(traced, call_id)["trace_id"]
    assert collector.resources[0]["service.name"] == "sluice"
    assert collector.resources[0]["service.instance.id"] == record["node"]


def test_other_families_and_streams(traced, collector):
    server, client = collector.of_call(call(traced, GENERATE, stream=True), 2)
    assert server.parent_span_id == b"" and len(server.trace_id) == 16
    expected = {"gen_ai.operation.name": "generate_content", "gen_ai.provider.name": "gcp.gemini"}
    for span in (server, client):
        assert values(span.attributes).items() >= expected.items()
    assert values(server.attributes)["sluice.stream"] is True


def test_a_failure_has_a_span_for_each_attempt(traced, collector):
    call_id = call(traced, prompt="[[demo status=500]]")
    tried = [one["channel"] for one in traced.record(call_id)["attempts"]]
    assert tried[:2] == ["first", "second"]
    server, *clients = collector.of_call(call_id, 1 + len(tried))
    assert [values(one.attributes)["sluice.channel"] for one in clients] == tried
    for span in (server, *clients):
        assert span.status.code == 2 and values(span.attributes)["error.type"]
    assert values(server.attributes)["sluice.attempts"] == len(tried)


def test_a_refused_call_is_one_span_without_the_name_that_was_asked_for(traced, collector):
    body = ask(CHAT, "model-of-the-caller")
    answer = exchange(
        traced.port, "POST", "/v1/chat/completions", {**credentials(CHAT), **PARENT}, body
    )
    [server] = collector.of_call(answer.call_id, 1)
    assert server.name == "chat" and "model-of-the-caller" not in str(server)
    assert values(server.attributes)["error.type"] == "model_not_found"


def test_nothing_of_a_prompt_or_a_key_is_in_a_span(traced, collector):
    collector.of_call(call(traced, prompt="walrus-in-the-prompt"), 2)
    text = str(collector.spans) + str(collector.resources)
    secret = credentials(CHAT)["Authorization"].removeprefix("Bearer ")
    user = traced.usage()[0]["user"]
    for word in ("walrus", "hello-of-the-prompt", secret, f'"{user}"', "sk-"):
        assert word not in text


def test_nothing_of_opentelemetry_is_loaded_where_it_is_off():
    code = (
        "import sys, commands.process.worker, commands.process.hub, commands.process.supervisor\n"
        "print([name for name in sys.modules if 'opentelemetry' in name or name == 'requests'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=Path(ROOT), capture_output=True, text=True, check=True
    )
    assert done.stdout == "[]\n"
