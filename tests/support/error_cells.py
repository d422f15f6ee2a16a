"""Every cell of docs/errors.md: how to provoke a condition in a family, and the result to expect.

A cell is a condition in a dialect before the first byte, or in a stream that has started. `WAYS`
and `STREAM_WAYS` are the whole matrix. The texts are those that clients were promised: they are
repeated here on purpose, independent of the code.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.dialects import ALL, CHAT, GENERATE, MESSAGES, RESPONSES

PUBLIC_URL = "https://gateway.example"
LIMIT_BYTES = 1 << 20
ARRAY = "generate_content array"  # a stream as one JSON array
LATE = "first_ms=2600"  # later than the commit of a gateway that waits one second
GOOD = "good-model"
ASIDE = "aside"  # models whose channels are brought to their limits before the cells run
UNRECORDED = ("E01", "E02", "E03", "E31", "E32", "E33", "E39")


@dataclass(frozen=True)
class Way:
    """One way to provoke a condition; defaults are those of a good call.

    `script`: the upstream's behaviour, as a directive of the prompt. `place`: where the channels
    of the call's own model lead. `asked`: how many of its two channels are asked. `says`: the
    whole message with {model} and {url} filled in, or a pattern if it starts with "re:".
    """

    says: str
    outcome: str = "refused"
    key: str = "main"
    headers: Mapping[str, str | None] = field(default_factory=dict)
    method: str = "POST"
    path: str | None = None
    model: str = GOOD
    changes: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    param: str | None = None  # of chat_completions and responses
    script: str | None = None
    place: str = "vendor"
    asked: int = 0
    gateway: str = "usual"


@dataclass(frozen=True, eq=False)  # a dictionary key; compared by identity
class Cell:
    """A condition (by its number) in a dialect; `stream`: after the response head."""

    number: str
    family: str  # or ARRAY
    way: Way
    stream: bool = False

    @property
    def label(self):
        return f"{self.number}, {self.family}{', in the stream' if self.stream else ''}"

    @property
    def model(self):
        """Return the name of the model that is requested."""
        if self.way.asked == 0:
            return self.way.model
        where = "stream" if self.stream else "answer"
        return f"{self.number}-{self.family}-{where}".replace(" ", "-").lower()

    @property
    def speaks(self):
        """Return the family of the endpoint."""
        return GENERATE if self.family == ARRAY else self.family


def upstream(says, script, asked=2, outcome="upstream_error", **more):
    """Return a way in which the upstream of the first channel fails; `asked` of the two channels
    are asked."""
    return Way(says, outcome, script=script, asked=asked, **more)


def everywhere(way):
    return dict.fromkeys(ALL, way)


BAD_KEY = "The Authorization header must be the word Bearer, one blank, then the API key."
NOBODYS = "sk-slc-of-nobody-0123456789wxyz"
NO_KEY = "No API key was sent. Use the header 'Authorization: Bearer <API_KEY>'"
NOT_OFFERED = "is not available to this API key. Check the name and the channel status."
TOO_LONG = "This model's maximum context length is 8 tokens: your messages have 9 tokens."
NOT_USABLE = "The channel for model '{model}' is not usable; tell the operator."
NO_SUCH_FILE = "No such file: file-abc123"
GONE = f'status=404 code=gone message="{NO_SUCH_FILE}"'
UNKNOWN_FILE = f"The upstream does not know an id of the request: {NO_SUCH_FILE}"
UNUSABLE = "The upstream sent an unreadable answer."
STOPPED = "The upstream channel stopped answering."
LIMITED = "All channels for model '{model}' are rate limited. Try again in 5s."
OVERLOADED = "The upstream is overloaded."
POLICY = "Your request was rejected by our safety system: it violates our content policy."
SILENT = "The upstream did not answer in time."
UNREACHABLE = "The upstream could not be reached."
BUG = "Internal error, see request id."
BUG_SCRIPT = 'status=400 message="a bug"'
CLOSED = "The group of this API key may not use this entry point."
REFUSED = "The upstream refused the request: top_k is out of range"
MISSING = "Missing required field: '{}'."
MODEL_PATH = "/v1beta/models/models/:generateContent"  # an empty model name
WEBSOCKET = {"Connection": "Upgrade", "Upgrade": "websocket"}
NO_ENDPOINT = "No such endpoint: "
DOUBLED = NO_ENDPOINT + "the base URL already contains {}; set it to {{url}}{}."


def _doubled(path, part, base=""):
    return Way(DOUBLED.format(part, base), path=path)


def _unknown(path):
    return Way(f"{NO_ENDPOINT}POST {path}.", path=path)


def _wrong(field_, value, says, param=None):
    return Way(says, changes={field_: value}, param=param)


def _missing(name, says):
    return Way(says, changes={name: ...}, param=name)


def _lacking(field_, value, param=None, before=""):
    says = f"{before}The group of this API key may not use the feature 'web_search'."
    param = None if before else param or field_
    return Way(says, changes={field_: value}, param=param, key="plain", model=GOOD)


def _unpriced(field_, word, before=""):
    condition = "tier" if word == "priority" else "speed"
    says = f"{before}Model '{GOOD}' has no price for '{condition}.{word}'."
    return Way(says, changes={field_: word}, param=None if before else field_, model=GOOD)


WAYS: dict[str, dict[str, Way]] = {
    "E01": {
        **everywhere(Way(f"{NO_KEY}.", key="")),
        MESSAGES: Way(f"{NO_KEY} or 'x-api-key: <API_KEY>'.", key=""),
        GENERATE: Way("No API key was sent. Use the header 'x-goog-api-key: <API_KEY>' or "
                      "'Authorization: Bearer <API_KEY>'.", key=""),
    },
    "E02": everywhere(Way(BAD_KEY, key="", headers={"Authorization": "Basic YWxpY2U6dGVh"})),
    "E03": {
        **everywhere(Way("re:Incorrect API key provided: sk-slc-…wxyz\\.", key=NOBODYS)),
        MESSAGES: Way("invalid x-api-key", key=NOBODYS),
        GENERATE: Way("API key not valid. Please pass a valid API key.", key=NOBODYS),
    },
    "E04": everywhere(Way("The API key is disabled.", key="disabled")),
    "E05": everywhere(Way("The API key has expired.", key="expired")),
    "E06": everywhere(Way("This address may not use the API key.", key="network")),
    "E07": {
        **{family: Way(CLOSED, key=f"no-{family}") for family in ALL},
        MESSAGES: Way("The group 'no-messages' of this API key does not support the messages "
                      "entry point.", key="no-messages"),
    },
    "E08": {
        **everywhere(Way("Model '{model}' " + NOT_OFFERED, model="nobodys", param="model")),
        MESSAGES: Way("model: {model} " + NOT_OFFERED, model="nobodys"),
        GENERATE: Way("models/{model} " + NOT_OFFERED, model="nobodys"),
    },
    "E09": {
        family: Way("No channel for model '{model}' can take the request right now.",
                    model=f"{ASIDE}-{family}",
                    param="model" if family in (CHAT, RESPONSES) else None)
        for family in ALL
    },
    "E10": {
        **everywhere(_missing("model", MISSING.format("model"))),
        MESSAGES: _missing("model", "model: field required"),
        GENERATE: Way("The path must name a model: models/{{model}}:generateContent.",
                      path=MODEL_PATH),
    },
    "E11": everywhere(Way(r"re:The body is not valid JSON \(line 1, column \d+\)\.",
                          content=b'{"model": ?}')),
    "E12": {
        CHAT: _wrong("messages", "hi", "Wrong type for 'messages': expected an array.", "messages"),
        RESPONSES: _wrong("input", 5, "Wrong type for 'input': expected a string or an array.",
                          "input"),
        MESSAGES: _wrong("messages", "hi", "messages: expected an array"),
        GENERATE: _wrong("contents", "hi", "Wrong type for 'contents': expected an array."),
    },
    "E13": {
        CHAT: _missing("messages", MISSING.format("messages")),
        RESPONSES: _missing("input", MISSING.format("input")),
        MESSAGES: _missing("max_tokens", "max_tokens: field required"),
        GENERATE: _missing("contents", MISSING.format("contents")),
    },
    "E14": {
        RESPONSES: _wrong("background", True, "'background' is not supported for model '{model}'.",
                          "background"),
    },
    "E15": everywhere(Way("The body is larger than 1 MiB.", content=b"",
                          headers={"Content-Length": str(LIMIT_BYTES + 1)})),
    "E16": everywhere(Way("Send the body with content-type: application/json.",
                          headers={"Content-Type": "text/plain"})),
    "E17": everywhere(Way("This content-encoding is not supported.",
                          headers={"Content-Encoding": "compress"})),
    "E18": everywhere(Way("The wallet balance is used up. Add balance in the API Hub.",
                          key="poor")),
    "E19": everywhere(Way(r"re:The subscription quota does not cover this call until 20\d\d-\d\d-01"
                          r": 0\.000000001 USD is left, and it needs at least 0\.\d+ USD\.",
                          key="subscriber")),
    "E20": everywhere(Way("Rate limit reached: 1 concurrent call. Try again in 3s.", key="busy")),
    "E21": {
        **everywhere(upstream(TOO_LONG, f'status=400 message="{TOO_LONG}"', 1, param="messages")),
        MESSAGES: upstream(TOO_LONG, f'status=400 message="{TOO_LONG}"', 1),
    },
    "E22": everywhere(upstream(REFUSED, 'status=400 message="top_k is out of range"', 1)),
    "E23": everywhere(upstream(POLICY, f'status=400 message="{POLICY}"', 1)),
    "E24": everywhere(upstream(NOT_USABLE, "status=401")),
    "E25": everywhere(upstream(LIMITED, "status=429")),
    "E26": everywhere(upstream("The upstream failed with status 500.", "status=500")),
    "E27": everywhere(upstream(OVERLOADED, "status=503")),
    "E28": everywhere(upstream(SILENT, "stall_before_head", 1, outcome="timeout")),
    "E29": everywhere(upstream(UNREACHABLE, None, place="dead")),
    "E30": everywhere(upstream(UNUSABLE, "html200")),
    "E31": {
        CHAT: _unknown("/v1/chat/completion"),
        RESPONSES: _unknown("/v1/responses/resp_1/unknown"),
        MESSAGES: _unknown("/v1/messages/batches"),
        GENERATE: _unknown("/v1beta/corpora"),
    },
    "E32": {
        CHAT: _doubled("/v1/chat/completions/chat/completions", "/v1/chat/completions", "/v1"),
        RESPONSES: _doubled("/v1/responses/responses", "/v1/responses", "/v1"),
        MESSAGES: _doubled("/v1/messages/v1/messages", "/v1/messages"),
        GENERATE: _doubled("/v1beta/v1beta/models/m:generateContent", "/v1beta"),
    },
    "E33": everywhere(Way("Use POST for this endpoint.", method="GET")),
    "E35": {
        **everywhere(upstream(UNKNOWN_FILE, GONE, 1)),
        RESPONSES: _wrong("previous_response_id", "resp_x", "The id 'resp_x' is not known here.",
                          "previous_response_id"),
        GENERATE: _wrong("cachedContent", "cachedContents/x",
                         "cachedContent: The id 'cachedContents/x' is not known here."),
    },
    "E36": everywhere(Way("The body did not arrive in time.", content=b'{"model"',
                          headers={"Content-Length": "1000"})),
    "E37": everywhere(upstream(BUG, BUG_SCRIPT, 1, outcome="internal_error", gateway="buggy")),
    "E38": {family: Way("The gateway cannot take calls right now.", key=f"of-{family}",
                        gateway="ending") for family in ALL},
    "E39": {RESPONSES: Way("Websockets are not supported here; use POST.", method="GET",
                           headers=WEBSOCKET)},
    "E40": {
        CHAT: _lacking("web_search_options", {}),
        RESPONSES: _lacking("tools", [{"type": "web_search"}], "tools[0]"),
        MESSAGES: _lacking("tools", [{"type": "web_search_20250305", "name": "web_search"}],
                           before="tools.0: "),
        GENERATE: _lacking("tools", [{"googleSearch": {}}], before="tools[0].googleSearch: "),
    },
    "E41": {
        CHAT: _unpriced("service_tier", "priority"),
        RESPONSES: _unpriced("service_tier", "priority"),
        MESSAGES: _unpriced("speed", "fast", before="speed: "),
        GENERATE: _unpriced("serviceTier", "priority", before="serviceTier: "),
    },
}  # fmt: skip


def _late(number, **more):
    """Return the ways of the same condition in a stream: only one channel is asked, because the
    head has been sent."""
    ways = WAYS[number]
    return {
        family: replace(ways[_speaker(family)], asked=1, **more,
                        script=f"{LATE} {ways[_speaker(family)].script}")
        for family in STREAMING
    }  # fmt: skip


def _speaker(family):
    return GENERATE if family == ARRAY else family


def _event(kind, words):
    return f'error_event=3 type={kind} message="{words}"'


def _in_all(way):
    return dict.fromkeys(STREAMING, way)


STREAMING = (*ALL, ARRAY)
DRAINED = "The gateway is shutting down and has ended this call before its end; send it again."
STREAM_WAYS: dict[str, dict[str, Way]] = {
    **{number: _late(number) for number in ("E21", "E22", "E23", "E24", "E37")},
    "E25": _in_all(upstream("too fast", _event("rate_limit_error", "too fast"), 1)),
    "E26": _in_all(upstream(STOPPED, "cut=3", 1, outcome="upstream_truncated")),
    "E27": _in_all(upstream("too busy", _event("overloaded_error", "too busy"), 1)),
    "E28": _in_all(upstream(STOPPED, "stall=3", 1, outcome="timeout")),
    "E29": _in_all(upstream(UNREACHABLE, None, 1, place="full")),
    "E30": {
        **_in_all(upstream(UNUSABLE, "garbage=2", 1)),
        # Invalid JSON hides the end of an element, so such an array would count as truncated.
        ARRAY: upstream(UNUSABLE, f"{LATE} html200", 1),
    },
    "E35": _in_all(upstream(UNKNOWN_FILE, f"{LATE} {GONE}", 1)),
    "E38": {family: Way(DRAINED, "drained",
                        key=f"of-{_speaker(family)}", gateway="ending", model=GOOD,
                        script="ms=100 chunks=2000") for family in STREAMING},
}  # fmt: skip

CELLS = [Cell(number, family, way) for number, ways in WAYS.items() for family, way in ways.items()]
STREAM_CELLS = [
    Cell(number, family, way, stream=True)
    for number, ways in STREAM_WAYS.items()
    for family, way in ways.items()
]
