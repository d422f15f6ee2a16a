"""The conditions under which a call fails: how each is provoked, and what each family says.

`ASKS` are ways to fail, the same for all families where they can be; `expected_of` says what the
caller gets, `extra_headers` which headers it has. The tables repeat the published error table on
purpose: it is what clients are built on, so it must not follow the code.
"""

import http.client
import json
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tests.sdk.world import ALIAS, FAMILIES, LACKS, TIMEOUT_S, World
from tests.support.gateway import HOST

RETRIES = 2
# Ways in which a vendor may put the channel aside: further tries are then told the same by us.
ASIDE = ("the upstream key is refused", "402", "403", "429 with the wait", "429 for hours")
AT_ONCE = 8
JSON = "application/json"
# Stands for the credential header that shall not be sent, and for the key itself in a header.
NO_HEADER = object()
KEY = "{key}"
ALL = tuple(FAMILIES)
C, R, M, G = ALL
OPENAI_FAMILIES, NAMED = (C, R), (C, R, M)  # of one SDK; with the model in the body
CALL = "/v1/models/tea:generateContent"
# In raw bodies: the name of the field with the user's words, and the field as a whole.
FIELD = {C: b"messages", R: b"input", M: b"messages", G: b"contents"}
WORDS = {
    C: b'"messages":[{"role":"user","content":"hi"}]',
    R: b'"input":"hi"',
    M: b'"messages":[{"role":"user","content":"hi"}]',
    G: b'"contents":[{"parts":[{"text":"hi"}]}]',
}


@dataclass(frozen=True)
class Ask:
    """One call that must fail with `condition`. `base` and `path` are by family; `content` is a raw
    body, with <field> and <words>; `says` are words of the message, with <field>; `own_model` asks
    for a model of the call's own; `ours` tells that the gateway refuses what a vendor may, too."""

    condition: str
    how: str
    key: str = "main"
    secret: str | None = None
    model: str = "tea"
    own_model: bool = False
    prompt: str = "Is tea ready?"
    headers: Mapping[str, Any] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    content: bytes | None = None
    base: Mapping[str, str] | None = None
    path: Mapping[str, str] | None = None
    method: str = "post"
    stream: bool = False
    says: str = ""
    retry_after: str | None = None
    families: tuple[str, ...] = ALL
    ours: bool = False

    @property
    def name(self) -> str:
        return f"{self.condition} {self.how}"

    def content_for(self, family: str) -> bytes:
        """The raw body."""
        filled = (self.content or b"").replace(b"<words>", WORDS[family])
        return filled.replace(b"<field>", FIELD[family])

    def says_for(self, family: str) -> str:
        """What the message must have in it."""
        return self.says.replace("<field>", FIELD[family].decode())

    @property
    def asks_vendor(self) -> bool:
        """Whether the failure is the vendor's."""
        return self.condition in OF_THE_VENDOR and not self.ours


def vendor(condition: str, how: str, words: str, **fields: Any) -> Ask:
    """The vendor fails as the words of its script say."""
    fields.setdefault("own_model", True)
    return Ask(condition, how, prompt=f"[[demo {words}]]", **fields)


TOO_LARGE = "tea " * (1 << 19)
OPENAI_TOO_LONG = "This model's maximum context length is 128000 tokens, not 128001"
GEMINI_TOO_LONG = "The input token count (210000) exceeds the maximum number of tokens allowed"

ASKS = (
    Ask("E01", "no key", headers={"Authorization": NO_HEADER}),
    Ask("E01", "empty x-api-key", headers={"Authorization": NO_HEADER, "x-api-key": ""},
        families=(M,)),
    Ask("E02", "bare key", headers={"Authorization": KEY}),
    Ask("E02", "another scheme", headers={"Authorization": "Basic YWxpY2U6dGVh"}),
    Ask("E02", "the other header is right", headers={"Authorization": KEY, "x-api-key": KEY},
        families=NAMED),
    Ask("E03", "wrong checksum", secret="sk-slc-wtdmw3wfjq7hwmow5gn4getaf52sbygm6b4m3ub"),
    Ask("E03", "nobody's", secret="a-key-that-was-never-made", families=OPENAI_FAMILIES,
        says="Incorrect API key provided: …made."),
    Ask("E03", "nobody's", secret="a-key-that-was-never-made", says="invalid x-api-key",
        families=(M,)),
    Ask("E03", "nobody's", secret="a-key-that-was-never-made", says="API key not valid.",
        families=(G,)),
    Ask("E03", "before the model is looked at", secret="a-key-never-made-2", model="no-such"),
    Ask("E03", "the other header is right", families=(G,),
        headers={"x-goog-api-key": "a-key-never-made-3", "Authorization": f"Bearer {KEY}"}),
    Ask("E04", "disabled", key="disabled"),
    Ask("E04", "revoked", key="revoked"),
    Ask("E04", "its user is disabled", key="ended"),
    Ask("E05", "expired", key="expired"),
    Ask("E06", "another network", key="far"),
    Ask("E07", "entry", key=LACKS[C], families=(C,)),
    Ask("E07", "entry", key=LACKS[R], families=(R,)),
    Ask("E07", "entry", key=LACKS[M], families=(M,), says="'no-messages'"),
    Ask("E07", "entry", key=LACKS[G], families=(G,)),
    Ask("E08", "unknown name", model="no-such-model", says="no-such-model"),
    Ask("E08", "name of the upstream", model=ALIAS),
    Ask("E08", "model disabled", model="off"),
    Ask("E08", "channel disabled", model="idle"),
    Ask("E08", "another group's", model="elsewhere"),
    Ask("E10", "empty", model="", families=NAMED),
    Ask("E10", "null", body={"model": None}, families=NAMED),
    Ask("E10", "missing", content=b'{"<field>":[]}', families=NAMED),
    Ask("E10", "not in the path", path={G: "/v1/models/:generateContent"}, families=(G,)),
    Ask("E11", "cut", content=b'{"model":"tea","<field>":[', says="line 1, column"),
    Ask("E11", "an array", content=b'["model","tea"]'),
    Ask("E11", "not UTF-8", content=b'{"model":"\xff","<field>":[]}'),
    Ask("E11", "empty", content=b""),
    Ask("E12", "words are a number", content=b'{"model":"tea","max_tokens":9,"<field>":7}',
        says="<field>"),
    Ask("E12", "words twice", content=b"{<words>,<words>}", says="<field>"),
    Ask("E12", "stream is a number", body={"stream": 1}, says="stream", families=NAMED),
    Ask("E12", "model twice", content=b'{"model":"tea","model":"tea",<words>}', families=NAMED),
    Ask("E13", "no words", content=b'{"model":"tea","max_tokens":9}', says="<field>"),
    Ask("E13", "max_tokens", content=b'{"model":"tea",<words>}', says="max_tokens",
        families=(M,)),
    Ask("E14", "in the background", body={"background": True}, says="'background'",
        families=(R,)),
    Ask("E15", "twice the limit", prompt=TOO_LARGE, says="1 MiB"),
    Ask("E16", "text", headers={"Content-Type": "text/plain"}),
    Ask("E17", "Brotli", headers={"Content-Encoding": "br"}),
    Ask("E18", "nothing left", key="poor", says="wallet"),
    Ask("E18", "streamed", key="poor", stream=True),
    Ask("E19", "plan", key="subscriber", says="quota does not cover this call until 20"),
    Ask("E19", "limit", key="limited", says="The spend limit of this API key does not"),
    Ask("E19", "streamed", key="subscriber", stream=True),
    Ask("E20", "busy", key="busy", says="1 concurrent call.", retry_after="3"),
    Ask("E20", "streamed", key="busy", stream=True, retry_after="3"),
    vendor("E21", "code", "status=400 code=context_length_exceeded", families=OPENAI_FAMILIES),
    vendor("E21", "words", 'status=400 message="prompt is too long: 210000 tokens > 200000"',
           says="prompt is too long: 210000 tokens > 200000", families=(M,)),
    vendor("E21", "its words", f'status=400 message="{GEMINI_TOO_LONG}"', says=GEMINI_TOO_LONG,
           families=(G,)),
    vendor("E21", "figures", f'status=400 message="{OPENAI_TOO_LONG}"', says=OPENAI_TOO_LONG,
           families=OPENAI_FAMILIES),
    vendor("E22", "400", 'status=400 message="top_p: out of range"', says="top_p: out of range"),
    vendor("E22", "413", "status=413"),
    vendor("E22", "422 as text", "status=422 body=text"),
    vendor("E22", "streamed", "status=400", stream=True),
    vendor("E23", "code", "status=400 code=content_policy_violation", families=OPENAI_FAMILIES),
    vendor("E23", "words", 'status=400 message="blocked by the content policy"',
           says="blocked by the content policy"),
    Ask("E24", "the upstream key is refused", model="bad-key"),
    vendor("E24", "402", "status=402"),
    vendor("E24", "403", "status=403"),
    vendor("E24", "404 of the model", "status=404"),
    # The vendors of the last family speak of quota for a limit of requests per minute, too.
    vendor("E24", "429 for quota", 'status=429 message="You exceeded your current quota"',
           families=NAMED),
    vendor("E25", "429 for quota", 'status=429 message="You exceeded your current quota"',
           retry_after="5", families=(G,)),
    vendor("E25", "429", "status=429", retry_after="5"),
    vendor("E25", "429 with the wait", "status=429 retry_after=9", retry_after="9"),
    vendor("E25", "429 for hours", "status=429 retry_after=7200", retry_after="60"),
    vendor("E25", "streamed", "status=429", stream=True, retry_after="5"),
    vendor("E26", "500", "status=500", says="500"),
    vendor("E26", "524 as a page", "status=524 body=html"),
    vendor("E26", "reset", "reset_before_head"),
    vendor("E26", "closed", "close_before_head"),
    vendor("E26", "error inside 200", "error200"),
    vendor("E26", "a whole answer cut short", "cut=40"),
    vendor("E27", "503", "status=503"),
    vendor("E27", "529", "status=529"),
    vendor("E27", "streamed", "status=503", stream=True),
    vendor("E28", "504", "status=504"),
    vendor("E28", "silent", "stall_before_head"),
    Ask("E29", "refused", model="closed"),
    Ask("E29", "streamed", model="closed-too", stream=True),
    vendor("E30", "a page", "html200"),
    vendor("E30", "nothing", "empty200"),
    vendor("E30", "other JSON", "json200"),
    vendor("E30", "redirect", "redirect"),
    vendor("E30", "streamed page", "html200", stream=True),
    vendor("E30", "garbage first", "garbage=0", stream=True),
    Ask("E31", "unknown", says="No such endpoint: POST /v1/",
        path={C: "/assistants", R: "/responses/resp_1/more", M: "/v1/messages/batches",
              G: "/v1/models/tea:embedContent"}),
    Ask("E31", "base URL without /v1", base={C: "", R: ""}, says="/v1.", families=OPENAI_FAMILIES),
    Ask("E31", "no version", path={M: "/messages"}, families=(M,)),
    Ask("E31", "another version", path={G: "/v1alpha/models/tea:generateContent"}, families=(G,)),
    Ask("E31", "told by its headers", path={M: "/complete", G: "/complete"}, families=(M, G)),
    Ask("E32", "the whole path", says="the base URL already contains /v1/", families=NAMED,
        base={C: "/v1/chat/completions", R: "/v1/responses", M: "/v1/messages"}),
    Ask("E32", "version twice", base={C: "/v1/v1", R: "/v1/v1", M: "/v1", G: "/v1beta"},
        says="the base URL already contains /v1"),
    Ask("E33", "GET", method="get", says="Use POST"),
    vendor("E35", "404 of a file", 'status=404 code=gone message="No such file: file-abc123"'),
    Ask("E35", "a prompt", body={"prompt": {"id": "pmpt_1234"}}, says="pmpt_1234",
        families=(R,), ours=True),
    Ask("E35", "what came before", body={"previous_response_id": "resp_nobodys"},
        says="'resp_nobodys'", families=(R,), ours=True),
    Ask("E35", "a talk", body={"conversation": "conv_nobodys"}, says="'conv_nobodys'",
        families=(R,), ours=True),
    Ask("E35", "stored", method="get", path={R: "/responses/resp_nobodys"},
        says="'resp_nobodys'", families=(R,), ours=True),
    Ask("E35", "cached words", body={"cachedContent": "cachedContents/nobodys"},
        says="'cachedContents/nobodys'", families=(G,), ours=True),
    Ask("E39", "a websocket", method="get", families=(R,),
        headers={"Upgrade": "websocket", "Connection": "Upgrade"}),
)  # fmt: skip

INVALID, SERVER, QUOTA = "invalid_request_error", "server_error", "insufficient_quota"
AUTH, API, OVERLOADED = "authentication_error", "api_error", "overloaded_error"

# condition: status, type and code of chat completions and responses, as other families build on it
OPENAI: dict[str, tuple[int, str, str]] = {
    "E01": (401, INVALID, "missing_api_key"),
    "E02": (401, INVALID, "malformed_authorization"),
    "E03": (401, INVALID, "invalid_api_key"),
    "E04": (401, INVALID, "api_key_disabled"),
    "E05": (401, INVALID, "api_key_expired"),
    "E06": (403, "permission_error", "ip_not_allowed"),
    "E07": (403, "permission_error", "entry_point_not_allowed"),
    "E08": (404, INVALID, "model_not_found"),
    "E10": (400, INVALID, "missing_required_parameter"),
    "E11": (400, INVALID, "invalid_json"),
    "E12": (400, INVALID, "invalid_type"),
    "E13": (400, INVALID, "missing_required_parameter"),
    "E15": (413, INVALID, "request_too_large"),
    "E16": (415, INVALID, "unsupported_content_type"),
    "E17": (415, INVALID, "unsupported_content_encoding"),
    "E18": (429, QUOTA, "insufficient_quota"),
    "E19": (429, QUOTA, "subscription_quota_exceeded"),
    "E20": (429, "rate_limit_error", "rate_limit_exceeded"),
    "E21": (400, INVALID, "context_length_exceeded"),
    "E22": (400, INVALID, "upstream_invalid_request"),
    "E23": (400, INVALID, "content_policy_violation"),
    "E24": (502, SERVER, "channel_misconfigured"),
    "E25": (429, "rate_limit_error", "upstream_rate_limited"),
    "E26": (502, SERVER, "upstream_error"),
    "E27": (503, SERVER, "upstream_overloaded"),
    "E28": (504, SERVER, "upstream_timeout"),
    "E29": (502, SERVER, "upstream_unreachable"),
    "E30": (502, SERVER, "upstream_invalid_response"),
    "E31": (404, INVALID, "unknown_path"),
    "E32": (404, INVALID, "duplicated_path"),
    "E33": (405, INVALID, "method_not_allowed"),
    "E35": (404, INVALID, "not_found"),
}
# What only one family has, or says in another way; statuses of the others.
OWN: dict[str, dict[str, Any]] = {
    R: {
        "E14": (400, INVALID, "unsupported_parameter"),
        "E27": (503, SERVER, "server_is_overloaded"),
        "E39": (426, INVALID, "upgrade_not_supported"),
    },
    M: {"E17": 400, "E18": 402, "E19": 402, "E27": 529},
    G: {"E18": 402, "E19": 402},
}
RECORDED_CODES = {number: row[2] for number, row in (OWN[R] | OPENAI).items()}
# status: the exception of openai
OPENAI_RAISES = {
    **{400: "BadRequestError", 401: "AuthenticationError", 403: "PermissionDeniedError"},
    **{404: "NotFoundError", 429: "RateLimitError"},
    **dict.fromkeys((405, 413, 415, 426), "APIStatusError"),
    **dict.fromkeys((502, 503, 504), "InternalServerError"),
}
# status: the type of messages, the exception of anthropic
MESSAGES_RAISES = {
    400: (INVALID, "BadRequestError"),
    401: (AUTH, "AuthenticationError"),
    402: ("billing_error", "PaymentRequiredError"),
    403: ("permission_error", "PermissionDeniedError"),
    404: ("not_found_error", "NotFoundError"),
    405: (INVALID, "APIStatusError"),
    413: ("request_too_large", "ContentTooLargeError"),
    415: (INVALID, "APIStatusError"),
    429: ("rate_limit_error", "RateLimitError"),
    502: (API, "InternalServerError"),
    504: ("timeout_error", "GatewayTimeoutError"),
    529: (OVERLOADED, "OverloadedError"),
}
ENCODING_ERROR = "RequestBodyEncodingUnsupportedError"  # of a status that has another, too
# status: its name in generate-content
GENERATE_NAMES = {
    **dict.fromkeys((400, 413, 415), "INVALID_ARGUMENT"),
    **{401: "UNAUTHENTICATED", 402: "FAILED_PRECONDITION", 403: "PERMISSION_DENIED"},
    **{404: "NOT_FOUND", 405: "UNIMPLEMENTED", 429: "RESOURCE_EXHAUSTED"},
    **{502: "INTERNAL", 503: "UNAVAILABLE", 504: "DEADLINE_EXCEEDED"},
}
REPEATED = {"E20", "E25", "E26", "E27", "E29", "E30"}  # by all SDKs
# google-genai goes by the status alone.
REPEATED_BY = {G: REPEATED | {"E24", "E28"}}


def conditions_of(family: str) -> set[str]:
    return set(OPENAI) | (set(OWN[R]) if family == R else set())


def expected_of(family: str, condition: str) -> tuple[int, tuple[str, ...], str, int]:
    """Return status, fields beside the message, exception of the SDK, and calls it makes."""
    calls = RETRIES + 1 if condition in REPEATED_BY.get(family, REPEATED) else 1
    status, *facts = OPENAI[condition] if condition in OPENAI else OWN[R][condition]
    if family in OPENAI_FAMILIES:
        status, *facts = OWN.get(family, {}).get(condition, (status, *facts))
        return status, tuple(facts), OPENAI_RAISES[status], calls
    status = OWN[family].get(condition, status)
    if family == M:
        kind, raised = MESSAGES_RAISES[status]
        return status, (kind,), ENCODING_ERROR if condition == "E17" else raised, calls
    name = "UNAVAILABLE" if condition == "E29" else GENERATE_NAMES[status]
    return status, (name,), "ServerError" if status >= 500 else "ClientError", calls


NOT_AGAIN = {*(f"E0{n}" for n in range(1, 9)), "E18", "E19", "E24", "E28"}  # x-should-retry: false
# No record: nobody is known to have called, or nothing was called.
UNRECORDED = {"E01", "E02", "E03", "E31", "E32", "E33", "E39"}
# The vendor is asked once a call; before E21 nobody is, and at E29 nobody is there.
OF_THE_VENDOR = {"E21", "E22", "E23", "E24", "E25", "E26", "E27", "E28", "E30", "E35"}
SEEN_HEADERS = ("x-should-retry", "retry-after", "www-authenticate", "allow")


def extra_headers(ask: Ask) -> dict[str, str]:
    """Those of SEEN_HEADERS that the answer must have, and no other."""
    extra: dict[str, str] = {}
    if ask.condition in NOT_AGAIN:
        extra["x-should-retry"] = "false"
    if ask.condition in ("E01", "E02"):
        extra["www-authenticate"] = "Bearer"
    if ask.condition == "E33":
        extra["allow"] = "POST"
    wait = ask.retry_after or {"E27": "2"}.get(ask.condition)
    return {**extra, "retry-after": wait} if wait else extra


@dataclass(frozen=True)
class Outcome:
    """What came of an ask: the exception, each answer (status, headers), and what was left."""

    tag: str
    raised: Exception
    answers: list[tuple[int, dict[str, str]]]


class Perform(Protocol):
    """Calls by an SDK: (ask, tag for X-Client-Request-Id and the prompt) -> what came of it."""

    def __call__(self, world: World, ask: Ask, tag: str) -> Outcome: ...


def asks_of(family: str) -> list[Ask]:
    """The asks that a family can make."""
    return [ask for ask in ASKS if family in ask.families]


def perform_all(world: World, family: str, perform: Perform) -> dict[str, Outcome]:
    """All asks of a family, some at a time, the longest first; outcomes by name."""
    own = world.frail
    asks = [replace(ask, model=own(family)) if ask.own_model else ask for ask in asks_of(family)]
    asks.sort(key=lambda ask: ask.how != "silent")
    tags = [f"{family}:{number}:" for number in range(len(asks))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(lambda pair: perform(world, *pair), zip(asks, tags, strict=True))
        return {ask.name: outcome for ask, outcome in zip(asks, outcomes, strict=True)}


def headers_of(ask: Ask, key: str, tag: str, omitted: object) -> dict[str, Any]:
    """The ask's headers with the key filled in; `omitted` is the SDK's word for none."""
    filled = {
        name: omitted if value is NO_HEADER else value.replace(KEY, key)
        for name, value in ask.headers.items()
    }
    return {"X-Client-Request-Id": tag, **filled}


def late_body(world: World, path: str) -> tuple[int, dict[str, str], Any]:
    """(status, headers, decoded body) when an announced body does not come: no SDK does so."""
    connection = http.client.HTTPConnection(HOST, world.gateway.port, timeout=TIMEOUT_S)
    try:
        connection.putrequest("POST", path)
        connection.putheader("Authorization", f"Bearer {world.keys['main']}")
        connection.putheader("Content-Type", JSON)
        connection.putheader("Content-Length", "100")
        connection.endheaders(b'{"model":')
        answer = connection.getresponse()
        headers = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, headers, json.loads(answer.read())
    finally:
        connection.close()


def check_trace(world: World, ask: Ask, outcome: Outcome, records: Mapping[str, Any]) -> None:
    """The vendor was asked as often as it had to be, and each call left its record."""
    calls = len(outcome.answers)
    reached = sum(outcome.tag in entry["body"] for entry in world.upstream.log())
    expected = calls if ask.asks_vendor else 0
    if ask.how in ASIDE:
        # How soon that counts for the tries behind the first is for relay/test_last_resort.py.
        assert 1 <= reached <= expected
    elif ask.how in ("reset", "closed"):
        # A kept connection that has died looks the same, so the request may be sent once more.
        assert reached >= expected
    else:
        assert reached == expected
    left = records.get(outcome.tag, [])
    if ask.condition in UNRECORDED:
        assert not left
        return
    assert [record["status"] for record in left] == [status for status, _ in outcome.answers]
    ids = [headers["x-request-id"] for _, headers in outcome.answers]
    assert sorted(record["id"] for record in left) == sorted(ids)
    assert {record["error_code"] for record in left} == {RECORDED_CODES[ask.condition]}
    refused = calls - reached if ask.how in ASIDE else 0
    outcomes = [_outcome(ask)] * (calls - refused) + ["refused"] * refused
    assert sorted(record["outcome"] for record in left) == sorted(outcomes)
    assert {record["cost"] for record in left} == {"0"}


def _outcome(ask: Ask) -> str:
    if ask.condition == "E28":
        return "timeout"
    upstream = ask.asks_vendor or ask.condition == "E29"
    return "upstream_error" if upstream else "refused"
