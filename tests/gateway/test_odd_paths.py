"""Odd spellings of paths: none of them leads to a request to a path that the family does not have.

The paths are sent raw. The scripted upstream's log shows what arrived there.
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


# Names of unknown models, as they may occur in a path.
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

# Other paths than those of a model's calls; all in the shape of generate_content.
ODD_CALLS = [
    *(f"/v1beta/models/{MODEL}:{verb}" for verb in (
        "", "GenerateContent", "generateContent/", "generateContent.array", "countTokens/..",
        "predict", "generateContent%20", "generate%43ontent", ":generateContent",
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


def send(gateway, path, *, key_in_query):
    """Call this exact path; return the answer."""
    headers = {} if key_in_query else dialects.credentials(dialects.GENERATE)
    if key_in_query:
        path += ("&" if "?" in path else "?") + f"key={dialects.SECRET}"
    body = dialects.ask(dialects.GENERATE, MODEL, "[[demo ms=0]]")
    if "countTokens" in path:
        del body["generationConfig"]
    return exchange(gateway.port, "POST", path, headers, body)


def fault_of(answer):
    """Return the problem of a refusal: not in the family's shape, or an internal error."""
    try:
        assert answer.whole and 400 <= answer.status < 500, (answer.head, answer.body)
        _, _, message = dialects.error_of(dialects.GENERATE, answer.body, answer.call_id)
        assert message and dialects.SECRET not in message
    except (AssertionError, ValueError, KeyError) as error:
        return repr(error)
    return None


ODD_PATHS = [*(f"/v1beta/models/{name}:generateContent" for name in ODD_NAMES), *ODD_CALLS]


def test_odd_paths_are_refused(gateway, vendor):
    """For the other families see tests/handlers/entries."""
    vendor.reset()
    wrong = []
    for number, path in enumerate(ODD_PATHS):
        answer = send(gateway, path, key_in_query=number % 4 > 1)
        if (fault := fault_of(answer)) is not None:
            wrong.append((path, fault))
    assert wrong == []
    assert vendor.log() == []


@pytest.mark.parametrize(
    "name", [DOTTED, f"models/{MODEL}", LONG_NAME, "pl%61in-model", "models%2fvendor%2fqwen3%3a8b"]
)
def test_legal_names_work_in_either_version(gateway, vendor, name):
    vendor.reset()
    for number, verb in enumerate(VERBS):
        version = ("v1", "v1beta")[number % 2]
        answer = send(gateway, f"/{version}/models/{name}:{verb}", key_in_query=True)
        assert answer.status == 200, answer.body
        counted = answer.json["totalTokens"] if verb == "countTokens" else None
        assert counted or dialects.text_of(dialects.GENERATE, answer.body)
        record = gateway.record(answer.call_id)
        assert record["model"] in (MODEL, LONG_NAME, DOTTED)
        assert record["endpoint"] == f"/v1beta/models/{{model}}:{verb.partition('?')[0]}"
    paths = [entry["path"] for entry in vendor.log()]
    assert paths == [f"/v1beta/models/{UPSTREAM}:{verb}" for verb in VERBS]
    assert dialects.SECRET not in json.dumps(vendor.log())
