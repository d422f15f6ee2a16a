"""The conditions under which a call fails: how to provoke each, and what each family answers.

`ASKS` are ways to fail, the same for all families where possible; `expected_of` returns what the
caller gets, `extra_headers` its headers, by the table of `dialects.REFUSALS`.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from tests.sdk.world import ALIAS, FAMILIES, LACKS, World
from tests.support.dialects import REFUSALS

RETRIES = 2
# Ways in which a vendor may make the gateway suspend the channel; the gateway then answers further
# tries in the same way itself.
ASIDE = ("the upstream key is refused", "402", "403", "429 with the wait", "429 for hours")
AT_ONCE = 8
JSON = "application/json"
# NO_HEADER stands for a credential header that is not sent, KEY for the key itself in a header.
NO_HEADER = object()
KEY = "{key}"
ALL = tuple(FAMILIES)
C, R, M, G = ALL
OPENAI_FAMILIES, NAMED = (C, R), (C, R, M)  # of one SDK; with the model in the body
# In raw bodies: the name of the field with the user's text, and the whole field.
FIELD = {C: b"messages", R: b"input", M: b"messages", G: b"contents"}
WORDS = {
    C: b'"messages":[{"role":"user","content":"hi"}]',
    R: b'"input":"hi"',
    M: b'"messages":[{"role":"user","content":"hi"}]',
    G: b'"contents":[{"parts":[{"text":"hi"}]}]',
}


@dataclass(frozen=True)
class Ask:
    """One call that must fail with `condition`.

    `base` and `path` are by family; `content` is a raw body, with <field> and <words>; `own_model`
    requests a separate model; `ours`: a condition of vendors that the gateway itself raises here.
    """

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
    retry_after: str | None = None
    families: tuple[str, ...] = ALL
    ours: bool = False

    @property
    def name(self) -> str:
        return f"{self.condition} {self.how}"

    def content_for(self, family: str) -> bytes:
        """Return the raw body."""
        filled = (self.content or b"").replace(b"<words>", WORDS[family])
        return filled.replace(b"<field>", FIELD[family])

    @property
    def asks_vendor(self) -> bool:
        """Return True if the failure is the vendor's."""
        return self.condition in OF_THE_VENDOR and not self.ours


def vendor(condition: str, how: str, words: str, **fields: Any) -> Ask:
    """Return a call at which the vendor fails as the words of its script say."""
    fields.setdefault("own_model", True)
    return Ask(condition, how, prompt=f"[[demo {words}]]", **fields)


TOO_LARGE = "tea " * (1 << 19)
OPENAI_TOO_LONG = "This model's maximum context length is 128000 tokens, not 128001"
GEMINI_TOO_LONG = "The input token count (210000) exceeds the maximum number of tokens allowed"

SEARCHES = {
    C: {"web_search_options": {}},
    R: {"tools": [{"type": "web_search"}]},
    M: {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
    G: {"tools": [{"googleSearch": {}}]},
}

ASKS = (
    Ask("E01", "no key", headers={"Authorization": NO_HEADER}),
    Ask("E01", "empty x-api-key", headers={"Authorization": NO_HEADER, "x-api-key": ""},
        families=(M,)),
    Ask("E02", "bare key", headers={"Authorization": KEY}),
    Ask("E02", "another scheme", headers={"Authorization": "Basic YWxpY2U6dGVh"}),
    Ask("E02", "the other header is right", headers={"Authorization": KEY, "x-api-key": KEY},
        families=NAMED),
    Ask("E03", "wrong checksum", secret="sk-slc-wtdmw3wfjq7hwmow5gn4getaf52sbygm6b4m3ub"),
    Ask("E03", "nobody's", secret="a-key-that-was-never-made"),
    Ask("E03", "the other header is right", families=(G,),
        headers={"x-goog-api-key": "a-key-never-made-3", "Authorization": f"Bearer {KEY}"}),
    Ask("E04", "disabled", key="disabled"),
    Ask("E04", "revoked", key="revoked"),
    Ask("E04", "its user is disabled", key="ended"),
    Ask("E05", "expired", key="expired"),
    Ask("E06", "another network", key="far"),
    *(Ask("E07", "entry", key=key, families=(family,)) for family, key in LACKS.items()),
    Ask("E08", "unknown name", model="no-such-model"),
    Ask("E08", "name of the upstream", model=ALIAS),
    Ask("E08", "model disabled", model="off"),
    Ask("E08", "channel disabled", model="idle"),
    Ask("E08", "another group's", model="elsewhere"),
    Ask("E10", "empty", model="", families=NAMED),
    Ask("E10", "null", body={"model": None}, families=NAMED),
    Ask("E10", "missing", content=b'{"<field>":[]}', families=NAMED),
    Ask("E10", "not in the path", path={G: "/v1/models/:generateContent"}, families=(G,)),
    Ask("E11", "cut", content=b'{"model":"tea","<field>":['),
    Ask("E12", "words are a number", content=b'{"model":"tea","max_tokens":9,"<field>":7}'),
    Ask("E13", "no words", content=b'{"model":"tea","max_tokens":9}'),
    Ask("E13", "max_tokens", content=b'{"model":"tea",<words>}', families=(M,)),
    Ask("E14", "in the background", body={"background": True}, families=(R,)),
    Ask("E15", "twice the limit", prompt=TOO_LARGE),
    Ask("E16", "text", headers={"Content-Type": "text/plain"}),
    Ask("E17", "LZW", headers={"Content-Encoding": "compress"}),
    Ask("E18", "nothing left", key="poor"),
    Ask("E18", "streamed", key="poor", stream=True),
    Ask("E19", "plan", key="subscriber"),
    Ask("E19", "limit", key="limited"),
    Ask("E19", "streamed", key="subscriber", stream=True),
    Ask("E20", "busy", key="busy"),
    Ask("E20", "streamed", key="busy", stream=True),
    vendor("E21", "code", "status=400 code=context_length_exceeded", families=OPENAI_FAMILIES),
    vendor("E21", "words", 'status=400 message="prompt is too long: 210000 tokens > 200000"',
           families=(M,)),
    vendor("E21", "its words", f'status=400 message="{GEMINI_TOO_LONG}"', families=(G,)),
    vendor("E21", "figures", f'status=400 message="{OPENAI_TOO_LONG}"', families=OPENAI_FAMILIES),
    vendor("E22", "400", 'status=400 message="top_p: out of range"'),
    vendor("E22", "streamed", "status=400", stream=True),
    vendor("E23", "code", "status=400 code=content_policy_violation", families=OPENAI_FAMILIES),
    vendor("E23", "words", 'status=400 message="blocked by the content policy"'),
    Ask("E24", "the upstream key is refused", model="bad-key"),
    vendor("E24", "402", "status=402"),
    vendor("E24", "403", "status=403"),
    vendor("E24", "404 of the model", "status=404"),
    # The vendors of the last family use the word quota for a limit of requests per minute, too.
    vendor("E24", "429 for quota", 'status=429 message="You exceeded your current quota"',
           families=NAMED),
    vendor("E25", "429 for quota", 'status=429 message="You exceeded your current quota"',
           families=(G,)),
    vendor("E25", "429", "status=429"),
    vendor("E25", "429 with the wait", "status=429 retry_after=9", retry_after="9"),
    vendor("E25", "429 for hours", "status=429 retry_after=7200", retry_after="60"),
    vendor("E25", "streamed", "status=429", stream=True),
    vendor("E26", "500", "status=500"),
    vendor("E26", "reset", "reset_before_head"),
    vendor("E26", "error inside 200", "error200"),
    vendor("E26", "a whole answer cut short", "cut=40"),
    vendor("E27", "503", "status=503"),
    vendor("E27", "streamed", "status=503", stream=True),
    vendor("E28", "504", "status=504"),
    vendor("E28", "silent", "stall_before_head"),
    Ask("E29", "refused", model="closed"),
    Ask("E29", "streamed", model="closed-too", stream=True),
    vendor("E30", "a page", "html200"),
    vendor("E30", "other JSON", "json200"),
    vendor("E30", "streamed page", "html200", stream=True),
    vendor("E30", "garbage first", "garbage=0", stream=True),
    Ask("E31", "unknown",
        path={C: "/assistants", R: "/responses/resp_1/more", M: "/v1/messages/batches",
              G: "/v1/models/tea:distill"}),
    Ask("E31", "base URL without /v1", base={C: "", R: ""}, families=OPENAI_FAMILIES),
    Ask("E31", "no version", path={M: "/messages"}, families=(M,)),
    Ask("E31", "another version", path={G: "/v1alpha/models/tea:generateContent"}, families=(G,)),
    Ask("E31", "told by its headers", path={M: "/complete", G: "/complete"}, families=(M, G)),
    Ask("E32", "the whole path", families=NAMED,
        base={C: "/v1/chat/completions", R: "/v1/responses", M: "/v1/messages"}),
    Ask("E32", "version twice", base={C: "/v1/v1", R: "/v1/v1", M: "/v1", G: "/v1beta"}),
    Ask("E33", "GET", method="get"),
    vendor("E35", "404 of a file", 'status=404 code=gone message="No such file: file-abc123"'),
    Ask("E35", "a prompt", body={"prompt": {"id": "pmpt_1234"}}, families=(R,), ours=True),
    Ask("E35", "what came before", body={"previous_response_id": "resp_nobodys"},
        families=(R,), ours=True),
    Ask("E35", "a talk", body={"conversation": "conv_nobodys"}, families=(R,), ours=True),
    Ask("E35", "stored", method="get", path={R: "/responses/resp_nobodys"},
        families=(R,), ours=True),
    Ask("E35", "cached words", body={"cachedContent": "cachedContents/nobodys"},
        families=(G,), ours=True),
    Ask("E39", "a websocket", method="get", families=(R,),
        headers={"Upgrade": "websocket", "Connection": "Upgrade"}),
    *(Ask("E40", "a hosted tool", key="plain", body=body, families=(family,))
      for family, body in SEARCHES.items()),
    Ask("E41", "a tier", body={"service_tier": "priority"}, families=OPENAI_FAMILIES),
    Ask("E41", "a speed", body={"speed": "fast"}, families=(M,)),
    Ask("E41", "its tier", body={"serviceTier": "priority"}, families=(G,)),
)  # fmt: skip

# status: the exceptions of openai and of anthropic
RAISES = {
    400: ("BadRequestError", "BadRequestError"),
    401: ("AuthenticationError", "AuthenticationError"),
    402: ("", "PaymentRequiredError"),
    403: ("PermissionDeniedError", "PermissionDeniedError"),
    404: ("NotFoundError", "NotFoundError"),
    413: ("APIStatusError", "ContentTooLargeError"),
    429: ("RateLimitError", "RateLimitError"),
    502: ("InternalServerError", "InternalServerError"),
    503: ("InternalServerError", ""),
    504: ("InternalServerError", "GatewayTimeoutError"),
    529: ("", "OverloadedError"),
    **dict.fromkeys((405, 415, 426), ("APIStatusError", "APIStatusError")),
}
ENCODING_ERROR = "RequestBodyEncodingUnsupportedError"  # E17 of anthropic
REPEATED = {"E20", "E25", "E26", "E27", "E29", "E30"}  # retried by all SDKs
REPEATED_BY = {G: REPEATED | {"E24", "E28"}}  # decides by the status alone
# Conditions that no call provokes here, and those of the responses family only.
ELSEWHERE = {"E09", "E36", "E37", "E38"}
OF_RESPONSES = {"E14", "E39"}


def conditions_of(family: str) -> set[str]:
    return set(REFUSALS) - ELSEWHERE - (set() if family == R else OF_RESPONSES)


def expected_of(family: str, condition: str) -> tuple[int, str, str, int]:
    """Return status, type of the error, exception of the SDK, and the number of its calls."""
    calls = RETRIES + 1 if condition in REPEATED_BY.get(family, REPEATED) else 1
    status, kind = REFUSALS[condition].of(family)
    if family == G:
        return status, kind, "ServerError" if status >= 500 else "ClientError", calls
    if (family, condition) == (M, "E17"):
        return status, kind, ENCODING_ERROR, calls
    return status, kind, RAISES[status][family == M], calls


# No record: the caller is unknown, or the path is not a call.
UNRECORDED = {"E01", "E02", "E03", "E31", "E32", "E33", "E39"}
# The vendor is asked once a call; before E21 it is not asked, and at E29 it cannot be reached.
OF_THE_VENDOR = {"E21", "E22", "E23", "E24", "E25", "E26", "E27", "E28", "E30", "E35"}


def extra_headers(ask: Ask) -> dict[str, str]:
    """Return the headers of SPECIAL_HEADERS that the answer must have; it has no others of them."""
    wait = {"retry-after": ask.retry_after} if ask.retry_after else {}
    return REFUSALS[ask.condition].headers | wait


@dataclass(frozen=True)
class Outcome:
    """The result of a call: the exception, and each answer (status, headers)."""

    tag: str
    raised: Exception
    answers: list[tuple[int, dict[str, str]]]


class Perform(Protocol):
    """A function that makes a call with an SDK: (ask, tag for X-Client-Request-Id and the prompt)
    -> Outcome."""

    def __call__(self, world: World, ask: Ask, tag: str) -> Outcome: ...


def asks_of(family: str) -> list[Ask]:
    """Return the calls that a family can make."""
    return [ask for ask in ASKS if family in ask.families]


def perform_all(world: World, family: str, perform: Perform) -> dict[str, Outcome]:
    """Make all calls of a family, several at a time, the longest first; return the outcomes by
    name."""
    own = world.frail
    asks = [replace(ask, model=own(family)) if ask.own_model else ask for ask in asks_of(family)]
    asks.sort(key=lambda ask: ask.how != "silent")
    tags = [f"{family}:{number}:" for number in range(len(asks))]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        outcomes = pool.map(lambda pair: perform(world, *pair), zip(asks, tags, strict=True))
        return {ask.name: outcome for ask, outcome in zip(asks, outcomes, strict=True)}


def headers_of(ask: Ask, key: str, tag: str, omitted: object) -> dict[str, Any]:
    """Return the call's headers with the key filled in; `omitted` is the SDK's value for no
    header."""
    filled = {
        name: omitted if value is NO_HEADER else value.replace(KEY, key)
        for name, value in ask.headers.items()
    }
    return {"X-Client-Request-Id": tag, **filled}


def check_trace(world: World, ask: Ask, outcome: Outcome, records: Mapping[str, Any]) -> None:
    """Check that the vendor was asked as often as necessary, and that each call left its record."""
    calls = len(outcome.answers)
    reached = sum(outcome.tag in entry["body"] for entry in world.upstream.log())
    expected = calls if ask.asks_vendor else 0
    if ask.how in ASIDE:
        # relay/test_last_resort.py checks how soon further tries are affected.
        assert 1 <= reached <= expected
    elif ask.how == "reset":
        # A dead kept connection looks the same, so the request may be sent once more.
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
    assert {record["error_code"] for record in left} == {REFUSALS[ask.condition].code}
    refused = calls - reached if ask.how in ASIDE else 0
    outcomes = [_outcome(ask)] * (calls - refused) + ["refused"] * refused
    assert sorted(record["outcome"] for record in left) == sorted(outcomes)
    assert {record["cost"] for record in left} == {"0"}


def _outcome(ask: Ask) -> str:
    if ask.condition == "E28":
        return "timeout"
    upstream = ask.asks_vendor or ask.condition == "E29"
    return "upstream_error" if upstream else "refused"
