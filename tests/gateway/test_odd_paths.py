"""Odd spellings of paths: none of them makes a request to a path that is not the family's own.

The paths are sent raw. What the scripted upstream has logged tells what arrived there.
"""

import json

import pytest

from tests.support import dialects
from tests.support.client import exchange
from tests.support.documents import channel, document

MODEL, LONG_NAME, DOTTED = "plain-model", "vendor/qwen3:8b", "gemini-2.5.x_1"
UPSTREAM = "demo-small"
VERBS = ("generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent", "countTokens")


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    models = dict.fromkeys((MODEL, LONG_NAME, DOTTED), UPSTREAM)
    channels = [channel(f"of-{family}", family, vendor.url, models) for family in dialects.ALL]
    return launch(document([*models], channels))


# Names of models that nobody has, as they may stand in a path.
ODD_NAMES = [
    "../../v1/chat/completions", "%2E%2E/x", "..%2F..%2Fv1%2Fmessages", "..;/x", "..%5cx",
    f"../models/{MODEL}", f"//{MODEL}", f"{MODEL}/", f"{MODEL}/..", f"{MODEL}..", f"{MODEL};v=1",
    f"{MODEL}%3Falt=sse", f"{MODEL}%23", f"{MODEL}%00", f"{MODEL}%0d%0aHost:%20evil.test",
    f"{MODEL}%20", f"{MODEL}+", MODEL.upper(), "plain%252Dmodel", f"models%2F{MODEL}%252F",
    f"models/models/{MODEL}", f"tunedModels/{MODEL}", f"{MODEL}:generateContent", f"{MODEL}:8b",
    "vendor/qwen3", "vendor/../vendor/qwen3:8b", "vendor%252Fqwen3:8b", "*", "{model}", "%zz",
    "%c0%ae%c0%ae/", "%ef%bc%8e%ef%bc%8e/x", "x" * 5000, "user:pw@evil.test", "//evil.test",
    "127.0.0.1:9", 'x"',
]  # fmt: skip

# Other paths beside those of calls of a model; all in the shape of generate_content.
ODD_CALLS = [
    *(f"/v1beta/models/{MODEL}:{verb}" for verb in (
        "", "GenerateContent", "generateContent/", "generateContent.array", "countTokens/..",
        "embedContent", "generateContent%20", "generate%43ontent", ":generateContent",
    )),
    *(f"/{version}/models/{MODEL}:generateContent" for version in (
        "v1alpha", "v2", "V1BETA", "v1%62eta", "v1beta%2f", "./v1beta", "v1beta/v1beta",
        "v1beta/../v1beta", "x/../v1beta", "v1beta//",
    )),
    f"/v1beta/Models/{MODEL}:generateContent",
    "/v1beta/models/:generateContent",
    f"/v1beta/publishers/google/models/{MODEL}:generateContent",
    f"/v1beta/models/{MODEL}?:generateContent",
]  # fmt: skip

# Paths beside those of the other families, with the shape of their errors; more of them:
# tests/handlers/entries/test_fallback.py.
BESIDE = {
    dialects.CHAT: [
        "/v1/chat//completions", "//v1/chat/completions", "/v1/chat/completions/..",
        "/v1/./chat/completions", "/v1/chat/../chat/completions", "/v1/chat%2Fcompletions",
        "/v1/chat/completions%20", "/v1/chat/completions%00", "/v1/chat/completions;x=1",
        "/V1/chat/completions", "/%76%31/chat/completions",
    ],
    dialects.MESSAGES: ["/v1/messages/../messages", "/v1/messages/%2e%2e/messages",
        "/v1/messages;x"],
    dialects.RESPONSES: ["/v1/responses//", "/v1/responses/../responses",
        "/v1/responses/compact/.."],
}  # fmt: skip


def send(gateway, family, path, *, key_in_query=False, model=MODEL):
    """A call to a path as it stands here; its answer."""
    headers = dialects.credentials(family)
    if key_in_query:
        headers = {}
        path += ("&" if "?" in path else "?") + f"key={dialects.SECRET}"
    body = dialects.ask(family, model, "[[demo ms=0]]")
    if "countTokens" in path:
        del body["generationConfig"]
    return exchange(gateway.port, "POST", path, headers, body)


def fault_of(answer, family):
    """Return what is wrong with a refusal: not in the family's shape, or a failure of ours."""
    try:
        assert answer.whole and 400 <= answer.status < 500, (answer.head, answer.body)
        _, _, message = dialects.error_of(family, answer.body, answer.call_id)
        assert message and dialects.SECRET not in message
    except (AssertionError, ValueError, KeyError) as error:
        return repr(error)
    return None


ODD_CALLED = [f"/v1beta/models/{name}:generateContent" for name in ODD_NAMES]
REFUSED = [
    *((dialects.GENERATE, path) for path in (*ODD_CALLED, *ODD_CALLS)),
    *((family, path) for family, paths in BESIDE.items() for path in paths),
]


def test_odd_paths_are_refused(gateway, vendor):
    vendor.reset()
    wrong = []
    for number, (family, path) in enumerate(REFUSED):
        key_in_query = family == dialects.GENERATE and number % 4 > 1
        answer = send(gateway, family, path, key_in_query=key_in_query)
        if (fault := fault_of(answer, family)) is not None:
            wrong.append((family, path, fault))
    assert wrong == []
    assert vendor.log() == []


@pytest.mark.parametrize(
    "name", [DOTTED, f"models/{MODEL}", LONG_NAME, "pl%61in-model", "models%2fvendor%2fqwen3%3a8b"]
)
def test_legal_names_work_in_either_version(gateway, vendor, name):
    vendor.reset()
    for number, verb in enumerate(VERBS):
        version = ("v1", "v1beta")[number % 2]
        answer = send(
            gateway, dialects.GENERATE, f"/{version}/models/{name}:{verb}", key_in_query=True
        )
        assert answer.status == 200, answer.body
        counted = answer.json["totalTokens"] if verb == "countTokens" else None
        assert counted or dialects.text_of(dialects.GENERATE, answer.body)
        record = gateway.record(answer.call_id)
        assert record["model"] in (MODEL, LONG_NAME, DOTTED)
        assert record["endpoint"] == f"/v1beta/models/{{model}}:{verb.partition('?')[0]}"
    paths = [entry["path"] for entry in vendor.log()]
    assert paths == [f"/v1beta/models/{UPSTREAM}:{verb}" for verb in VERBS]
    assert dialects.SECRET not in json.dumps(vendor.log())
