"""Odd spellings of paths: none of them makes a request to a path that is not the family's own.

The paths are sent raw. What the scripted upstream has logged tells what arrived there.
"""

import json

import pytest

from tests.support.client import Connection
from tests.support.dialects import (
    ALL,
    CHAT,
    GENERATE,
    MESSAGES,
    PATHS,
    RESPONSES,
    SECRET,
    ask,
    check_refusal,
    credentials,
    error_of,
    text_of,
)
from tests.support.documents import channel, document

MODEL, LONG_NAME, DOTTED = "plain-model", "vendor/qwen3:8b", "gemini-2.5.x_1"
UPSTREAM = "demo-small"
VERBS = ("generateContent", "streamGenerateContent?alt=sse", "streamGenerateContent", "countTokens")
OWN_PATHS = {
    CHAT: {PATHS[CHAT]},
    RESPONSES: {PATHS[RESPONSES], "/v1/responses/input_tokens", "/v1/responses/compact"},
    MESSAGES: {PATHS[MESSAGES], "/v1/messages/count_tokens"},
    GENERATE: {f"/v1beta/models/{UPSTREAM}:{verb}" for verb in VERBS},
}


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    models = dict.fromkeys((MODEL, LONG_NAME, DOTTED), UPSTREAM)
    channels = [channel(f"of-{family}", family, vendor.url, models) for family in ALL]
    return launch(document([*models], channels))


# Names of models that nobody has, as they may stand in a path.
ODD_NAMES = [
    "..", "../..", "../../v1/chat/completions", "%2e%2e", "%2E%2E/x", ".%2e", "..%2f..%2fx",
    "..%2F..%2Fv1%2Fmessages", "%2e%2e%2f%2e%2e%2f", "..;/x", "..\\x", "..%5cx", "x/../y",
    f"../models/{MODEL}", f"./{MODEL}", f"/{MODEL}", f"//{MODEL}", f"{MODEL}/", f"{MODEL}//",
    f"{MODEL}/.", f"{MODEL}/..", f"{MODEL}.", f"{MODEL}..", f".{MODEL}", f"{MODEL}%2e",
    f"{MODEL};v=1", f"{MODEL}%3bv=1", f"{MODEL}%3F", f"{MODEL}%3Falt=sse", f"{MODEL}%23",
    f"{MODEL}%00", f"%00{MODEL}", f"{MODEL}%0a", f"{MODEL}%0d%0aHost:%20evil.test", f"{MODEL}%20",
    f"%20{MODEL}", f"{MODEL}+", "a%20b", f"{MODEL}%09", MODEL.upper(), "Plain-Model",
    "plain%252Dmodel", "%2570lain-model", f"models%2F{MODEL}%252F", f"models/models/{MODEL}",
    f"models%2fmodels%2f{MODEL}", "models/", f"Models/{MODEL}", f"tunedModels/{MODEL}",
    f"{MODEL}:generateContent", f"{MODEL}:", f":{MODEL}", f"{MODEL}:8b", "vendor/qwen3", "qwen3:8b",
    "vendor//qwen3:8b", "vendor/./qwen3:8b", "vendor/../vendor/qwen3:8b", "vendor%252Fqwen3:8b",
    "Vendor/qwen3:8b", "vendor/qwen3:8B", "vendor\\qwen3:8b", "vendor/qwen3%3A%3A8b", "*", "$", "~",
    "{model}", "[x]", "%", "%zz", "%u0041", "%ff%fe", "%c0%ae%c0%ae/", "%ef%bc%8e%ef%bc%8e/x",
    "x" * 5000, "@evil.test", "user:pw@evil.test",
    "http://evil.test/", "//evil.test", "127.0.0.1:9", "x'--", 'x"', "<x>", "x|y", "x^y", "x,y",
]  # fmt: skip
CALLED_WITH = ("/v1beta/models/{}:generateContent", "/v1/models/{}:streamGenerateContent")

# Other paths beside those of calls of a model; all in the shape of generate_content.
ODD_CALLS = [
    *(f"/v1beta/models/{MODEL}:{verb}" for verb in (
        "", "generate", "GenerateContent", "generatecontent", "GENERATECONTENT", "generateContent/",
        "generateContent.array", "streamGenerateContent.array", "countTokens/..", "embedContent",
        "batchGenerateContent", "generateContent;x", "generateContent%20", "generate%43ontent",
        "generateContent%3F", ":generateContent", "predict", "countTokens:", "constructor",
    )),
    *(f"/{version}/models/{MODEL}:generateContent" for version in (
        "v1alpha", "v1beta1", "v1beta2", "v1beta3", "v2", "v3", "v0", "v1.1", "V1", "V1BETA",
        "v1Beta", "v1%62eta", "%761beta", "v1beta%2f", "v1beta;", "v1beta.", "./v1beta",
        "v1/v1beta", "v1beta/v1beta", "v1beta/../v1beta", "/v1beta", "x/../v1beta", "v1beta//",
    )),
    f"/models/{MODEL}:generateContent",
    f"/v1beta/Models/{MODEL}:generateContent",
    f"/v1beta/model/{MODEL}:generateContent",
    f"/v1beta//models/{MODEL}:generateContent",
    "/v1beta/models:generateContent",
    "/v1beta/models/:generateContent",
    f"/v1beta/tunedModels/{MODEL}:generateContent",
    f"/v1beta/publishers/google/models/{MODEL}:generateContent",
    f"/v1beta/models/{MODEL}",
    f"/v1beta/models/{MODEL}?:generateContent",
    "/v1beta/cachedContents",
    "/v1beta/files/abc",
    "/v1beta",
    "/v1beta/",
]  # fmt: skip

# Paths beside those of the other families, with the shape of their errors.
BESIDE = {
    CHAT: [
        "/v1/chat/completions/", "/v1/chat//completions", "/v1//chat/completions",
        "//v1/chat/completions", "/v1/chat/completions/..", "/v1/chat/../chat/completions",
        "/v1/./chat/completions", "/v1/chat%2Fcompletions", "/v1/chat/completions%20",
        "/v1/chat/completions%00", "/v1/chat/completions;x=1", "/v1/chat/completions.",
        "/V1/chat/completions", "/v1/Chat/Completions", "/v1/chat/completion", "/v1/completions",
        "/v1/chat", "/chat/completions", "/v2/chat/completions", "/v1/v1/chat/completions",
        "/%76%31/chat/completions", "/v1/engines/x/chat/completions", "/v1/embeddings",
    ],
    MESSAGES: [
        "/v1/messages/", "/v1/messages//count_tokens", "/v1/messages/count_tokens/",
        "/v1/messages/../messages", "/v1/messages/%2e%2e/messages", "/v1/messages;x", "/messages",
        "/v1/messages/batches", "/v1/messages/Count_Tokens", "/v2/messages", "/v1/v1/messages",
        "/v1/messages%2Fcount_tokens",
    ],
    RESPONSES: [
        "/v1/responses/", "/v1/responses//", "/v1/responses/input_tokens/x", "/v1/v1/responses",
        "/v1/responses/../responses", "/responses", "/v2/responses", "/v1/responses/compact/..",
    ],
}  # fmt: skip


def send(gateway, family, path, *, key_in_query=False, model=MODEL):
    """A call to a path as it stands here; its answer."""
    headers = credentials(family)
    if key_in_query:
        headers = {}
        path += ("&" if "?" in path else "?") + f"key={SECRET}"
    with Connection(gateway.port) as connection:
        body = ask(family, model, "[[demo ms=0]]")
        if "countTokens" in path:
            del body["generationConfig"]
        connection.request("POST", path, headers, body)
        return connection.read()


def check_refused(answer, family):
    """A refusal of ours in the family's shape that is no failure of ours."""
    assert answer.whole and 400 <= answer.status < 500, (answer.head, answer.body)
    _, _, message = error_of(family, answer.body, answer.call_id)
    assert message and SECRET not in message


def check_arrived(vendor, family):
    """Nothing but calls to the family's own paths arrived upstream; how many did."""
    found = vendor.log()
    assert {entry["path"] for entry in found} <= OWN_PATHS[family], found
    for entry in found:
        assert SECRET not in json.dumps(entry)
    return len(found)


@pytest.mark.parametrize("name", ODD_NAMES, ids=lambda name: ascii(name[:30]))
def test_odd_names_of_models_are_refused(gateway, vendor, name):
    vendor.reset()
    for path in CALLED_WITH:
        for key_in_query in (False, True):
            answer = send(gateway, GENERATE, path.format(name), key_in_query=key_in_query)
            check_refused(answer, GENERATE)
    assert check_arrived(vendor, GENERATE) == 0


@pytest.mark.parametrize(
    "name", ["ä", "模型", "‥", "．．", "\x00", "\x01", "\x7f", "\t", "a b"], ids=ascii
)
def test_bytes_that_no_path_has_are_no_request(gateway, vendor, name):
    vendor.reset()
    path = f"/v1beta/models/{name}:generateContent".encode().decode("latin-1")
    answer = send(gateway, GENERATE, path)
    assert answer.status == 400 and answer.whole
    error_of(CHAT, answer.body, answer.call_id)  # whose path it is cannot be told
    assert check_arrived(vendor, GENERATE) == 0


@pytest.mark.parametrize("path", ODD_CALLS, ids=ascii)
def test_odd_calls_of_a_model_are_refused(gateway, vendor, path):
    vendor.reset()
    for key_in_query in (False, True):
        check_refused(send(gateway, GENERATE, path, key_in_query=key_in_query), GENERATE)
    assert check_arrived(vendor, GENERATE) == 0


@pytest.mark.parametrize(
    ("family", "path"), [(family, path) for family, paths in BESIDE.items() for path in paths]
)
def test_paths_beside_the_endpoints_are_refused(gateway, vendor, family, path):
    vendor.reset()
    answer = send(gateway, family, path)
    check_refused(answer, family)
    assert check_arrived(vendor, family) == 0


ODD_QUERIES = [
    "?", "?alt", "?alt=", "?alt=json", "?alt=sse", "?alt=SSE", "?alt=sse&alt=json", "?alt=%73se",
    "?;alt=sse", "?&&&", "?=", "?/../../v1/models", "?x=..%2F..", "?x#alt=sse", "?%00", "?%", "?+",
    "?" + "a=1&" * 5, "?" + "a&" * 90, "?" + "a&" * 5000, "?" + "x" * 20000, "?key", "?beta=true",
    "??alt=sse",
]  # fmt: skip


@pytest.mark.parametrize("family", ALL)
@pytest.mark.parametrize("query", ODD_QUERIES, ids=lambda query: ascii(query[:20]))
def test_odd_queries_change_no_path(gateway, vendor, family, query):
    vendor.reset()
    path = PATHS[family].replace("{model}", MODEL)
    if family == GENERATE:
        path = path.replace("generateContent", "streamGenerateContent")
    answer = send(gateway, family, path + query)
    assert answer.whole and answer.status in (200, 400, 401), (answer.head, answer.body)
    if answer.status == 200:
        assert check_arrived(vendor, family) == 1
    else:
        check_refused(answer, family)
        assert check_arrived(vendor, family) == 0


GOOD_NAMES = [
    MODEL, LONG_NAME, DOTTED, f"models/{MODEL}", f"models/{LONG_NAME}", "vendor%2Fqwen3:8b",
    "vendor%2fqwen3%3A8b", "vendor/qwen3%3a8b", f"models%2F{MODEL}", "pl%61in-model",
    "%76endor/qwen3:8b", "models%2fvendor%2fqwen3%3a8b",
]  # fmt: skip


@pytest.mark.parametrize("version", ["v1", "v1beta"])
@pytest.mark.parametrize("name", GOOD_NAMES)
def test_legal_names_work_in_either_version(gateway, vendor, version, name):
    vendor.reset()
    for verb in VERBS:
        answer = send(gateway, GENERATE, f"/{version}/models/{name}:{verb}", key_in_query=True)
        assert answer.status == 200, answer.body
        if verb == "countTokens":
            assert answer.json["totalTokens"] > 0
        else:
            assert text_of(GENERATE, answer.body)
        record = gateway.record(answer.call_id)
        assert record["model"] in (MODEL, LONG_NAME, DOTTED)
        assert record["endpoint"] == f"/v1beta/models/{{model}}:{verb.partition('?')[0]}"
    assert [e["path"] for e in vendor.log()] == [
        f"/v1beta/models/{UPSTREAM}:{verb}" for verb in VERBS
    ]
    assert SECRET not in json.dumps(vendor.log())


@pytest.mark.parametrize("name", ["a%20b", "plain-mode", "vendor/qwen3:8", "demo-small"])
def test_a_name_that_is_not_here_is_e08(gateway, name):
    for version in ("v1", "v1beta"):
        for verb in VERBS:
            answer = send(gateway, GENERATE, f"/{version}/models/{name}:{verb}")
            check_refusal(answer, GENERATE, "E08")
            record = gateway.record(answer.call_id)
            assert record["model"] == name.replace("%20", " ")
            assert record["error_code"] == "model_not_found"


@pytest.mark.parametrize("verb", VERBS)
def test_a_body_that_names_another_model_than_the_path_is_e12(gateway, vendor, verb):
    vendor.reset()
    contents = [{"parts": [{"text": "x"}]}]
    path = f"/v1beta/models/{LONG_NAME}:{verb}"
    for body in (
        {"model": MODEL, "contents": contents},
        {"model": "models/" + MODEL, "contents": contents},
        {"contents": contents, "generateContentRequest": {"model": MODEL, "contents": contents}},
    ):
        with Connection(gateway.port) as connection:
            connection.request("POST", path, credentials(GENERATE), body)
            answer = connection.read()
        message = check_refusal(answer, GENERATE, "E12")
        assert "model" in message
        record = gateway.record(answer.call_id)
        assert (record["outcome"], record["model"]) == ("refused", LONG_NAME)
    assert vendor.log() == []
    for name in (LONG_NAME, "models/" + LONG_NAME):
        with Connection(gateway.port) as connection:
            body = {"contents": contents, "model": name}
            connection.request("POST", path, credentials(GENERATE), body)
            connection.read()
    bodies = [json.loads(entry["body"]) for entry in vendor.log()]
    assert [body["model"] for body in bodies] == [UPSTREAM, "models/" + UPSTREAM]


@pytest.mark.parametrize("version", ["v1alpha", "v1beta1", "v2", "v1beta2"])
def test_another_version_is_e31(gateway, version):
    answer = send(gateway, GENERATE, f"/{version}/models/{MODEL}:generateContent")
    check_refusal(answer, GENERATE, "E31")
    assert answer.call_id not in gateway.tail


def test_a_key_in_a_path_is_in_no_file(gateway):
    """The last test of this file: all that was written here is looked through."""
    answer = send(gateway, GENERATE, f"/v1beta/models/{MODEL}:generateContent", key_in_query=True)
    gateway.record(answer.call_id)
    assert SECRET not in json.dumps(gateway.usage())
    files = [path for path in gateway.folder.rglob("*") if path.is_file()]
    assert gateway.log_path in files and any(path.suffix == ".db" for path in files)
    assert [path for path in files if SECRET.encode() in path.read_bytes()] == []
