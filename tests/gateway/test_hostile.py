"""Hostile requests and hostile streams, ten thousand mutants of each, the same in every run.

Requests go through real sockets. Streams go through the bridge in memory, some hundreds of them
through a gateway. Whether a stream looks whole is judged by readers of this file's own, which read
as clients do.
"""

import copy
import itertools
import json
import math
import random
import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from adapters.bridge import NativeBridge
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from tests.support.client import Closed, Connection
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    ask,
    check_ids,
    credentials,
    error_of,
    path_of,
)
from tests.support.documents import channel, document
from tests.support.upstream import SAMPLES, RawUpstream

MODEL, SAMPLE_MODEL = "hostile-model", "demo-large"
IN_GATEWAY_EACH = 80
# Four broken streams at most through one of them: its circuit is not to open.
RAW_MODELS = [f"raw-model-{number}" for number in range(IN_GATEWAY_EACH // 2)]
SEED = 20261122


@pytest.fixture(scope="module")
def raw():
    with RawUpstream() as upstream:
        yield upstream


@pytest.fixture(scope="module")
def gateway(launch, vendor, raw):
    channels = []
    for family in ALL:
        channels.append(channel(f"of-{family}", family, vendor.url, {MODEL: "script.ms=0"}))
        channels.append(
            # one hostile stream for each call: no channel of another family takes over
            channel(
                f"raw-{family}",
                family,
                raw.url,
                dict.fromkeys(RAW_MODELS, SAMPLE_MODEL),
                translate=False,
            )
        )
    settings = {"log.level": "warning", "upstream.heartbeat_s": 0, "upstream.commit_after_s": 0,
                "upstream.idle_timeout_s": 10}  # fmt: skip
    return launch(document([MODEL, *RAW_MODELS], channels), settings, follow=False)


# ---- requests ------------------------------------------------------------------------------------

REQUESTS_EACH = 2500
AT_ONCE = 8
HOSTILE_VALUES = [
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 0.5, -0.0, 1e308, math.inf,
    -math.inf, math.nan, "", " ", "\x00", "\ud800", "\udfff\ud800", "a" * 70_000, "../../etc",
    "𝒳" * 100, "\u202e", "null", "[DONE]", "data: x\n\n", "\r\n\r\n", "1", "true", [], {}, [[]],
    [None], [{}], {"": ""}, {"type": "x"}, [1, "a", None], {"__proto__": {}}, "sk-" + "x" * 40,
    [[[[[[[[]]]]]]]], {"a": {"a": {"a": {}}}}, [0] * 500, {str(n): n for n in range(300)},
]  # fmt: skip
HOSTILE_BYTES = [
    b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xef\xbb\xbf", b"\x00", b"\\u0000", b"\\ud800", b"\\",
    b"[" * 3000, b'{"a":' * 1500, b"]", b"}", b'"', b",", b":", b",,", b"NaN", b"1e99999", b"-",
    b"00", b"0x1", b"1" * 5000, b"//x\n", b"/**/", b"'", b"\x1f", b"\xe2\x80\xa8", b'"model":1,',
    b'"stream":true,', b'"stream":"x",', b'"contents":[],', b'"max_tokens":-1,', b"tru", b"\r",
]  # fmt: skip
TOOL = {"name": "pick", "description": "d", "parameters": {"type": "object", "properties": {}}}
MORE = {
    CHAT: {"tools": [{"type": "function", "function": TOOL}], "n": 1, "stop": ["x"], "seed": 1,
           "stream_options": {"include_usage": True}, "temperature": 1, "user": "u"},
    RESPONSES: {"instructions": "i", "tools": [{"type": "function", **TOOL, "strict": False}],
                "previous_response_id": None, "conversation": None, "metadata": {"a": "b"},
                "store": False, "reasoning": {"effort": "low"}},
    MESSAGES: {"system": [{"type": "text", "text": "s"}], "temperature": 1, "metadata": {},
               "tools": [{"name": "pick", "input_schema": {"type": "object"}}],
               "thinking": {"type": "disabled"}},
    GENERATE: {"systemInstruction": {"parts": [{"text": "s"}]}, "model": MODEL,
               "tools": [{"functionDeclarations": [TOOL]}], "safetySettings": [],
               "cachedContent": None, "generationConfig": {"maxOutputTokens": 9,
                                                           "candidateCount": 1}},
}  # fmt: skip
PLACES = {
    CHAT: ["/v1/chat/completions"],
    RESPONSES: ["/v1/responses", "/v1/responses", "/v1/responses/input_tokens",
                "/v1/responses/compact"],
    MESSAGES: ["/v1/messages", "/v1/messages", "/v1/messages/count_tokens"],
    GENERATE: [f"/{version}/models/{MODEL}:{verb}" for version in ("v1", "v1beta") for verb in (
        "generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent",
        "countTokens")],
}  # fmt: skip


def places_in(value, found):
    """Every container inside a JSON value, itself included."""
    if isinstance(value, (dict, list)):
        found.append(value)
        for inner in value.values() if isinstance(value, dict) else value:
            places_in(inner, found)
    return found


def warp(body, rng):
    """Changes one thing in a decoded request."""
    place = rng.choice(places_in(body, []))
    keys = list(place) if isinstance(place, dict) else list(range(len(place)))
    value = copy.deepcopy(rng.choice(HOSTILE_VALUES))
    if not keys:
        if isinstance(place, dict):
            place["x"] = value
        else:
            place.append(value)
        return
    key = rng.choice(keys)
    kind = rng.randrange(6)
    if kind == 0:
        del place[key]
    elif kind == 1 and isinstance(place, dict):
        place[rng.choice([key.upper(), key + " ", "\x00" + key, ""])] = place.pop(key)
    elif kind == 2:
        place[key] = [place[key]]
    elif kind == 3:
        place[key] = {"x": place[key]}
    else:
        place[key] = value


def hostile_request(family, rng):
    """The bytes of a request that is wrong in some way, mostly."""
    stream = rng.random() < 0.4
    body = json.loads(json.dumps({**ask(family, MODEL, "x", stream), **MORE[family]}))
    for name in rng.sample(sorted(MORE[family]), rng.randrange(len(MORE[family]))):
        body.pop(name, None)
    for _ in range(rng.choice([0, 1, 1, 1, 2, 4])):
        warp(body, rng)
    data = json.dumps(body, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.5:
        data = hostile_bytes(data, rng, HOSTILE_BYTES)
    return data


def hostile_bytes(data, rng, pieces):
    """The data with a few bytes flipped, cut out, doubled, put in or cut off."""
    out = bytearray(data)
    for _ in range(rng.randint(1, 3)):
        at, size = rng.randrange(len(out) + 1), rng.randint(1, 40)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + size]
        elif kind == 2:
            out[at:at] = out[at : at + size]
        elif kind == 3:
            out[at:at] = rng.choice(pieces)
        elif kind == 4:
            found = out.find(rng.choice([b'"', b":", b",", b"{", b"}", b"[", b"\n", b"\r"]), at)
            if found >= 0:
                out[found : found + 1] = rng.choice([b"", b"7", b"\x00", *pieces])
        else:
            del out[at:]
    return bytes(out)


class Caller:
    """Sends requests on one connection as long as it is kept."""

    def __init__(self, port):
        self._port = port
        self._connection = None

    def call(self, path, headers, body):
        if self._connection is None:
            self._connection = Connection(self._port)
        self._connection.request("POST", path, headers, body)
        answer = self._connection.read_head()
        self._connection.read_body(answer)
        if answer.headers.get("connection") == "close":
            self.close()
        return answer

    def close(self):
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def fault_of(family, answer):
    """What is wrong with the answer to a hostile request; None when nothing is."""
    try:
        check_ids(answer)
        assert answer.whole
        if answer.status == 200:
            assert answer.headers["content-type"].split(";")[0] in (
                "application/json", "text/event-stream")  # fmt: skip
        else:
            assert 400 <= answer.status < 500
            error_of(family, answer.body, answer.call_id)
    except (AssertionError, ValueError, KeyError) as error:
        return f"{error!r:.300}"
    return None


def call_all(port, family, numbers):
    """Sends the mutants of these numbers; (statuses, what was wrong)."""
    caller, statuses, wrong = Caller(port), {}, []
    for number in numbers:
        rng = random.Random(f"{SEED} {family} {number}")
        path = rng.choice(PLACES[family])
        body = hostile_request(family, rng)
        try:
            answer = caller.call(path, credentials(family), body)
            fault = fault_of(family, answer)
            statuses[answer.status] = statuses.get(answer.status, 0) + 1
        except (Closed, OSError, ValueError, AssertionError) as error:
            caller.close()
            fault = f"{error!r:.300}"
        if fault is not None:
            wrong.append((number, path, fault, body[:300]))
    caller.close()
    return statuses, wrong


@pytest.mark.parametrize("family", ALL)
def test_hostile_requests_are_refused_in_shape_and_never_our_failure(gateway, family):
    with ThreadPoolExecutor(AT_ONCE) as pool:
        parts = [range(start, REQUESTS_EACH, AT_ONCE) for start in range(AT_ONCE)]
        done = list(pool.map(lambda part: call_all(gateway.port, family, part), parts))
    wrong = [fault for _, found in done for fault in found]
    assert wrong == [], (len(wrong), wrong[:5])
    statuses = [status for found, _ in done for status in found for _ in range(found[status])]
    assert len(statuses) == REQUESTS_EACH
    # Neither all were refused at once, nor did all pass.
    assert 0.02 * REQUESTS_EACH < statuses.count(200) < 0.7 * REQUESTS_EACH
    log = gateway.log()
    assert "Traceback" not in log and "failed inside the gateway" not in log


# ---- streams: how clients read them --------------------------------------------------------------

LINE_END = re.compile(rb"\r\n|\n|\r")


class Broken(Exception):
    """A client's reader fails here: it raises, or it sees an error."""


def sse_data(stream):
    """The data of each event; of the last one also when its blank line is missing, and behind a
    byte order mark wherever one stands, as some clients read it."""
    data = []
    for found in [*LINE_END.split(stream), b""]:
        line = found.removeprefix(b"\xef\xbb\xbf")
        if not line:
            if data:
                yield b"\n".join(data)
            data = []
        name, _, value = line.partition(b":")
        if name == b"data":
            data.append(value.removeprefix(b" "))


def objects_in(stream, array):
    """The decoded events or elements, "[DONE]" as it is. Raises Broken as a client would."""
    try:
        if array:
            said = json.loads(stream)
            yield from said if isinstance(said, list) else [said]
            yield "]"
            return
        for data in sse_data(stream):
            yield "[DONE]" if data.strip() == b"[DONE]" else json.loads(data)
    except (ValueError, RecursionError) as error:
        raise Broken from error


def verdict(family, stream, array=False):
    """What a client takes the bytes for: "whole", "failed" (it raises), or "unfinished", which
    some take for whole."""
    open_choices, done = set(), set()
    ended = False
    try:
        for said in objects_in(stream, array):
            if said in ("[DONE]", "]"):
                ended = ended or family == CHAT or array  # whatever finish reasons are missing
                continue
            if not isinstance(said, dict) or said.get("error"):
                return "failed"
            kind = said.get("type")
            if family != GENERATE and kind in ("error", "response.failed"):
                return "failed"
            ended = ended or kind in ENDS.get(family, ())
            blocked = said.get("promptFeedback") if family == GENERATE else None
            ended = ended or bool(isinstance(blocked, dict) and blocked.get("blockReason"))
            _note_finishes(family, said, open_choices, done)
            if ended and family in ENDS:
                break  # what follows is not read
    except Broken:
        return "failed"
    finished = bool(done) and not open_choices - done
    return "whole" if ended or finished else "unfinished"


ENDS = {
    RESPONSES: ("response.completed", "response.incomplete"),
    MESSAGES: ("message_stop",),
}


def _note_finishes(family, said, open_choices, done):
    names = {CHAT: ("choices", "finish_reason"), GENERATE: ("candidates", "finishReason")}
    if family not in names:
        return
    several, reason = names[family]
    choices = said.get(several)
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict):
            index = choice.get("index")
            index = index if isinstance(index, int) else 0
            (done if choice.get(reason) else open_choices).add(index)


# ---- streams: mutants ----------------------------------------------------------------------------

STREAMS_EACH = 2000
LIMIT_BYTES = 6000
GARBAGE = [
    b"data: [DONE]\n\n", b": x\n\n", b"\n", b"\r\n", b"\n\n", b"\r", b"data:\n\n", b"data: {}\n\n",
    b"event: error\n\n", b"event: error\ndata: {}\n\n", b'data: {"error":{"message":"x"}}\n\n',
    b"data: [1]\n\n", b"data: nonsense\n\n", b"id: 1\n\n", b"retry: 5\n\n", b"data: 7\n\n", b"\x00",
    b'data: {"type":"ping"}\n\n', b"data: {\ndata: }\n\n", b"\xef\xbb\xbf", b"<html>", b"dat", b"]",
    b"[", b",", b"}", b"{", b'"', b"\\", b"\xff", b"[" * 3000, b"data: " + b"x" * 9000, b"NaN",
    b'"finish_reason":"stop"', b'"finishReason":"STOP",', b'"type":"message_stop"', b"1e999",
    b'"error":null,', b'"error":{},', b'"choices":[],', b'"candidates":[],', b'"index":1,',
]  # fmt: skip
KINDS = [(family, False) for family in ALL] + [(GENERATE, True)]


def stream_samples(family, array):
    folder = SAMPLES / family
    paths = [folder / "text_stream_array.json"] if array else sorted(folder.glob("*.sse"))
    return [path.read_bytes() for path in paths]


def pieces_of(data, array):
    """Events, or the elements of an array with what is between them."""
    cut = re.compile(rb"(?<=\n  \})(?=,|\n\])" if array else rb"(?<=\n\n)|(?<=\r\n\r\n)")
    return [piece for piece in cut.split(data) if piece]


def hostile_stream(samples, array, rng):
    """The bytes of a stream that is wrong in some way, mostly."""
    pieces = pieces_of(rng.choice(samples), array)
    for _ in range(rng.choice([0, 1, 1, 2, 3])):
        at = rng.randrange(len(pieces))
        kind = rng.randrange(7)
        if kind == 0 and len(pieces) > 1:
            del pieces[at]
        elif kind == 1 and len(pieces) > 1:
            pieces.pop()  # the end is lost
        elif kind == 2:
            pieces.insert(at, pieces[at])
        elif kind == 3:
            rng.shuffle(pieces)
        elif kind == 4:
            pieces.insert(at, rng.choice(GARBAGE))
        else:
            pieces[at] = hostile_bytes(pieces[at], rng, GARBAGE)
    data = b"".join(pieces)
    ends = rng.choice([None, None, None, b"\n", b"\r\n", b"\r"])
    if ends is not None:
        data = data.replace(b"\r\n", b"\n").replace(b"\n", ends)
    if rng.random() < 0.3:
        data = hostile_bytes(data, rng, GARBAGE)
    return data


def chunks_of(data, rng):
    """The data, cut as a network might."""
    many = rng.choice([0, 1, 2, 8, 40])
    at = sorted(rng.randrange(len(data) + 1) for _ in range(many))
    return [data[a:b] for a, b in itertools.pairwise([0, *at, len(data)])]


def tap_of(family, array, public):
    wire = FAMILIES[family]
    operation = wire.upstream.operations["stream"]
    if array:
        operation = wire.client.operations["stream_array"]
    return wire.upstream.stream_tap(public, SAMPLE_MODEL, False, operation)


def relayed(family, array, chunks, public, limit_bytes=LIMIT_BYTES):
    """What a client gets of a stream that ends properly: (bytes, whole, whether it was dropped)."""
    stream = NativeBridge(tap_of(family, array, public), limit_bytes)
    sent = b"".join([stream.feed(chunk) for chunk in chunks])
    sent += stream.close()
    assert stream.fault is None or isinstance(stream.fault, Fault)
    assert stream.usage is None or stream.reported
    assert stream.output_units >= 0
    if stream.whole and stream.fault is None:
        return sent, True, False
    if not stream.at_boundary:
        return sent, False, True  # the connection is dropped: no client takes that for an end
    fault = stream.fault or Fault(Condition.UPSTREAM_FAILED)
    return sent + stream.encode_fault(fault, "req_1"), False, False


def judge(family, array, outcome, which):
    """A stream that was not whole makes its client fail; one that was did not lose its end."""
    sent, whole, dropped = outcome
    seen = verdict(family, sent, array)
    if whole:
        assert seen != "unfinished", (which, sent)
    elif seen == "whole":
        # Only when the end is the vendor's own, in an event too long for the gateway to read.
        assert len(max(pieces_of(which, array), key=len)) > LIMIT_BYTES, (which, sent)
        assert verdict(family, which, array) == "whole", (which, sent)
    else:
        assert seen == "failed" or dropped, (which, sent)


@pytest.mark.parametrize("public", [SAMPLE_MODEL, "public/name:1"])
@pytest.mark.parametrize(("family", "array"), KINDS)
def test_no_hostile_stream_gets_a_faked_end(family, array, public):
    samples = stream_samples(family, array)
    seen = {True: 0, False: 0}
    for number in range(STREAMS_EACH // 2 if family == GENERATE else STREAMS_EACH):
        rng = random.Random(f"{SEED} {family} {array} {public} {number}")
        data = hostile_stream(samples, array, rng)
        sent, whole, dropped = relayed(family, array, chunks_of(data, rng), public)
        seen[whole] += 1
        judge(family, array, (sent, whole, dropped), data)
        # However it is cut, it is the same stream, but for what is too long to be read.
        once = relayed(family, array, [data], public, len(data))
        again = relayed(family, array, chunks_of(data, rng), public, len(data))
        assert once == again, (number, data)
        judge(family, array, once, data)
    assert min(seen.values()) > STREAMS_EACH // 50, seen


@pytest.mark.parametrize(("family", "array"), KINDS)
def test_no_hostile_stream_gets_a_faked_end_through_a_gateway(gateway, raw, family, array):
    samples = stream_samples(family, array)
    seen = {True: 0, False: 0}
    for number in range(IN_GATEWAY_EACH):
        rng = random.Random(f"{SEED} gateway {family} {array} {number}")
        data = hostile_stream(samples, array, rng)
        cut = rng.random() < 0.3
        model = RAW_MODELS[number // 2]
        path = path_of(family, model, stream=True, array=array)
        body = ask(family, model, stream=True)
        if family == CHAT:
            body["stream_options"] = {"include_usage": True}
        with Connection(gateway.port) as connection:
            connection.request("POST", path, credentials(family), body)
            peer = raw.accept()
            send_stream(peer, chunks_of(data, rng), array, cut)
            answer = connection.read()
        if answer.status != 200:
            assert answer.status < 600 and answer.whole
            error_of(family, answer.body, answer.call_id)
            continue
        found = verdict(family, answer.body, array)
        seen[found == "whole"] += 1
        if found == "unfinished":
            assert not answer.whole, (number, data, answer.body)
        lost = verdict(family, data, array) == "unfinished"
        assert not (lost and found == "whole"), (number, data, answer.body)
    assert min(seen.values()) > IN_GATEWAY_EACH // 20, seen


def send_stream(peer, chunks, array, cut):
    """A streamed answer of an upstream; `cut`: without the proper end of its body."""
    kind = b"application/json" if array else b"text/event-stream"
    try:
        peer.send(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Type: " + kind
                  + b"\r\nTransfer-Encoding: chunked\r\n\r\n")  # fmt: skip
        for chunk in chunks:
            if chunk:
                peer.chunk(chunk)
        if not cut:
            peer.chunk(b"")
    except OSError:
        pass  # the gateway has seen enough
    peer.close()
