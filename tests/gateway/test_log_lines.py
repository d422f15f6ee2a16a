"""Every line of every process has its time and level; every request id can be traced."""

import json
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from handlers.telemetry.calls import UNRECORDED_MAX
from tests.support.call_line import FIELDS
from tests.support.client import exchange, wait_until
from tests.support.dialects import ALL, CHAT, GENERATE, ask, credentials, path_of
from tests.support.documents import channel, document
from tests.support.gateway import Gateway
from tests.support.upstream import ScriptedUpstream

MODEL = "demo-small"
TEXT = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z (debug|info|warning|error|critical) [\w.]+: \S.*"
)
NOT_KEYS = {
    "missing_api_key": {},
    "malformed_authorization": {"Authorization": "no-bearer"},
    "invalid_api_key": {"Authorization": "Bearer sk-of-nobody-123456"},
}


@pytest.fixture(scope="module", params=["json", "text"])
def node(request, tmp_path_factory):
    """(form, what `serve` wrote, ids by what was asked for), after all kinds of calls."""
    folder = tmp_path_factory.mktemp(request.param) / "node"
    with ScriptedUpstream() as vendor:
        gateway = Gateway(folder, {"log.format": request.param, "server.workers": 2})
        try:
            channels = [channel(family, family, vendor.url, {MODEL: MODEL}) for family in ALL]
            made = document([MODEL], channels)
            made["group"][0]["translate"] = False  # what fails at one channel fails once
            gateway.apply(made)
            gateway.log_path = folder / "only-serve.log"
            gateway.start()
            ids = call_all(gateway)
            assert wait_until(lambda: all(one in gateway.log() for one in ids.values()), 10)
            assert gateway.stop() == 0
            yield request.param, gateway.log().splitlines(), ids
        finally:
            gateway.close()


def call_all(gateway):
    """The ids of calls and refusals, by what they are."""
    ids = {}
    for family in ALL:
        body = ask(family, MODEL)
        path = path_of(family, MODEL)
        ids[family] = exchange(gateway.port, "POST", path, credentials(family), body).call_id
    for code, headers in NOT_KEYS.items():
        answer = exchange(gateway.port, "POST", "/v1/chat/completions", headers, ask(CHAT, MODEL))
        assert code.encode() in answer.body
        ids[code] = answer.call_id
    ids["list"] = exchange(gateway.port, "GET", "/v1/models", {}).call_id
    ids["query"] = exchange(gateway.port, "GET", "/v1beta/models?key=sk-of-nobody-123456").call_id
    ids["path"] = exchange(gateway.port, "POST", "/v1/not/a/path", {}, {}).call_id
    broken = ask(CHAT, MODEL, "[[demo status=500]]")
    ids["broken"] = exchange(
        gateway.port, "POST", "/v1/chat/completions", credentials(CHAT), broken
    ).call_id
    return ids


def test_every_line_has_its_time_and_level(node):
    form, lines, _ = node
    assert len(lines) > 10
    for line in lines:
        if form == "text":
            assert TEXT.fullmatch(line), line
        else:
            said = json.loads(line)
            assert said["at"].endswith("Z") and len(said["at"]) == 24, line
            assert said["level"] in ("debug", "info", "warning", "error", "critical"), line


def line_about(node, what):
    """The fields of the one access line of a request."""
    form, lines, ids = node
    found = [line for line in lines if ids[what] in line and "request_id" in line]
    if form == "json":
        [said] = [one for one in map(json.loads, found) if one.get("event") == "call"]
        return said
    [line] = [one for one in found if " info call: " in one]
    pairs = [pair.partition("=") for pair in line.partition(" call: ")[2].split()]
    return {name: value for name, _, value in pairs}


@pytest.mark.parametrize("family", ALL)
def test_a_call_has_one_line_with_its_fields(node, family):
    said = line_about(node, family)
    assert said["family"] == family and said["model"] == MODEL and said["group"] == "all"
    assert said["channel"] == family and said["outcome"] == "ok"
    assert int(said["status"]) == 200 and int(said["attempts"]) == 1 and int(said["tokens"]) > 0
    assert said["client_ip"] == "127.0.0.1" and float(said["cost"]) > 0
    if node[0] == "json":
        assert set(FIELDS) <= set(said)


def test_requests_without_a_known_key_can_be_traced(node):
    for code in NOT_KEYS:
        said = line_about(node, code)
        assert (said["error_code"], said["outcome"], int(said["status"])) == (code, "refused", 401)
        assert (said["endpoint"], said["family"]) == ("/v1/chat/completions", CHAT)
    assert line_about(node, "list")["error_code"] == "missing_api_key"
    said = line_about(node, "query")
    assert (said["family"], said["endpoint"]) == (GENERATE, "/v1beta/models")
    said = line_about(node, "path")
    assert said["error_code"] == "unknown_path" and not said.get("endpoint")
    assert not [line for line in node[1] if "sk-of-nobody" in line or "not/a/path" in line]


def test_the_first_failure_of_a_channel_is_a_line_with_the_request_id(node):
    _, lines, ids = node
    assert line_about(node, "broken")["error_code"] == "upstream_error"
    [line] = [one for one in lines if "channel fails: " in one]
    assert ids["broken"] in line


def test_a_flood_of_wrong_keys_does_not_flood_the_log(tmp_path):
    gateway = Gateway(tmp_path / "node")
    try:
        gateway.start()
        wrong = {"Authorization": "Bearer sk-wrong-1234"}
        with ThreadPoolExecutor(8) as pool:
            for _ in range(10 * UNRECORDED_MAX):
                pool.submit(exchange, gateway.port, "GET", "/v1/models", wrong)
        assert wait_until(lambda: "more requests without a known key" in gateway.log(), 10)
        assert gateway.stop() == 0
        lines = [json.loads(line) for line in gateway.log().splitlines() if line[0] == "{"]
        told = [line for line in lines if line.get("error_code") == "invalid_api_key"]
        more = [line["message"] for line in lines if "more requests" in line.get("message", "")]
        left_out = sum(int(message.split()[0]) for message in more)
        assert len(told) + left_out == 10 * UNRECORDED_MAX and left_out > 0
    finally:
        gateway.close()
