"""Probes of clients, and paths that are no endpoint."""

import pytest

from tests.support.dialects import check_ids
from tests.support.served import BASE_URL, VERSION

CHAT, MESSAGES = f"{BASE_URL}/v1", BASE_URL
CHAT_SHAPE, MESSAGES_SHAPE, GENERATE_SHAPE = "invalid_request_error", "not_found_error", "NOT_FOUND"
GOOGLE = {"x-goog-api-key": "x"}


def shape_of(answer):
    """Return the field that distinguishes the three shapes of a 404."""
    error = answer.json["error"]
    return error["status"] if "status" in error else error["type"]


def too_much(part, right):
    return f"No such endpoint: the base URL already contains {part}; set it to {right}."


@pytest.mark.parametrize(
    ("path", "body"), [("/", b'{"service":"sluice"}'), ("/livez", b'{"live":true}')]
)
async def test_probes(served, path, body):
    answer = await served.ask("GET", path)
    assert (answer.status, answer.body) == (200, body)
    assert answer.headers["content-type"] == "application/json"
    check_ids(answer)
    assert (await served.ask("HEAD", path)).headers["content-length"] == str(len(body))


@pytest.mark.parametrize("path", ["/", "/livez"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_of_probes(served, path, method):
    peer = await served.peer()
    answer = await peer.ask(method, path, None, b"{}")
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
    assert answer.json["error"]["message"] == "Use GET, HEAD for this endpoint."
    assert (await peer.ask("GET", path)).status == 200


DOUBLED = {
    ("/v1/chat/completions", CHAT): ["/v1/chat/completions/chat/completions",
                                     "/v1/chat/completions/responses"],
    ("/v1/chat/completions/v1", CHAT): ["/v1/chat/completions/v1/chat/completions"],
    ("/v1/v1", CHAT): [
        "/v1/v1/chat/completions", "/v1/v1/responses", "/v1/v1/responses/", "/v1/v1/files",
        "/v1/v1/responses/input_tokens", "/v1/v1/responses/resp_1", "/v1/v1",
    ],
    ("/v1beta/v1", CHAT): ["/v1beta/v1/chat/completions", "/v1beta/v1/responses"],
    ("/v1/messages", CHAT): ["/v1/messages/chat/completions"],
    ("/v1/responses", CHAT): ["/v1/responses/responses", "/v1/responses/chat/completions"],
    ("/v1/responses/v1", CHAT): ["/v1/responses/v1/responses",
                                 "/v1/responses/v1/responses/compact"],
    ("/v1/messages", MESSAGES): ["/v1/messages/v1/messages", "/v1/messages/v1/messages/",
                                 "/v1/messages/messages"],
    ("/v1", MESSAGES): ["/v1/v1/messages", "/v1/v1/messages/count_tokens"],
    ("/v1beta", MESSAGES): ["/v1beta/v1/messages"],
    ("/v1/chat/completions", MESSAGES): ["/v1/chat/completions/v1/messages"],
}  # fmt: skip


@pytest.mark.parametrize(
    ("part", "right", "path"), [(*key, path) for key, paths in DOUBLED.items() for path in paths]
)
async def test_a_base_url_with_too_much_in_it(served, path, part, right):
    answer = await served.ask("POST", path, None, b"{}")
    error = answer.json["error"]
    assert (answer.status, error["message"]) == (404, too_much(part, right))
    if right == CHAT:
        assert (error["type"], error["code"]) == (CHAT_SHAPE, "duplicated_path")
    else:
        assert error["type"] == MESSAGES_SHAPE
        assert answer.json["request_id"] == answer.call_id


@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent", "countTokens"])
@pytest.mark.parametrize(
    ("before", "part"),
    [("/v1beta/v1", "/v1beta"), ("/v1/v1beta", "/v1"), ("/v1/v1", "/v1"),
     ("/v1beta/v1beta", "/v1beta"), ("/v1/messages/v1beta", "/v1/messages"),
     ("/v1/responses/v1", "/v1/responses"), ("/v1/v1/v1beta", "/v1/v1")],
)  # fmt: skip
@pytest.mark.parametrize("model", ["m", "vendor/qwen3:8b", "models/m"])
async def test_a_base_url_with_a_version_in_front_of_a_model(served, before, part, model, verb):
    path = f"{before}/models/{model}:{verb}?alt=sse"
    answer = await served.ask("POST", path, {"Authorization": "Bearer x"}, b"{}")
    message = too_much(part, BASE_URL)
    assert answer.json == {"error": {"code": 404, "message": message, "status": GENERATE_SHAPE}}
    check_ids(answer)


@pytest.mark.parametrize(("path", "headers", "part", "right", "shape"), [
    ("/v1/v1/models", {}, "/v1/v1", CHAT, CHAT_SHAPE),
    ("/v1/v1/models/gpt", {}, "/v1/v1", CHAT, CHAT_SHAPE),
    ("/v1/v1/models", VERSION, "/v1", BASE_URL, MESSAGES_SHAPE),
    ("/v1/v1/models", GOOGLE, "/v1", BASE_URL, GENERATE_SHAPE),
    ("/v1beta/v1/models", GOOGLE, "/v1beta", BASE_URL, GENERATE_SHAPE),
    ("/v1beta/v1/models/m?key=x", {}, "/v1beta", BASE_URL, GENERATE_SHAPE),
    ("/v1beta/v1/models", VERSION, "/v1beta", BASE_URL, MESSAGES_SHAPE),
    ("/v1/v1beta/models", {}, "/v1/v1beta", CHAT, CHAT_SHAPE),
    ("/v1beta/v1beta/models", {}, "/v1beta", BASE_URL, GENERATE_SHAPE),
    ("/v1beta/v1beta/files", VERSION, "/v1beta", BASE_URL, GENERATE_SHAPE),
])  # fmt: skip
async def test_a_list_behind_two_versions(served, path, headers, part, right, shape):
    answer = await served.ask("GET", path, headers)
    assert (answer.status, shape_of(answer)) == (404, shape)
    assert answer.json["error"]["message"] == too_much(part, right)


TO_CHAT, TO_MESSAGES = f"; set the base URL to {CHAT}.", f"; set the base URL to {MESSAGES}."
UNKNOWN = {
    (CHAT_SHAPE, TO_CHAT): [
        "/responses", "/openai/v1/responses", "/v1beta/responses", "/v1/responses/",
        "/responses/input_tokens", "/api/responses/compact", "/models", "/chat/completions",
        "/api/chat/completions", "/openai/v1/chat/completions", "/v1/chat/completions/",
        "/v1beta/chat/completions",
    ],
    (MESSAGES_SHAPE, TO_MESSAGES): [
        "/messages", "/anthropic/v1/messages", "/messages/count_tokens",
        "/v1/count_tokens/messages", "/v1/messages/",
    ],
    (GENERATE_SHAPE, TO_MESSAGES): [
        f"{before}/models/m:generateContent"
        for before in ("", "/gemini", "/proxy/v1beta", "/api/v1")
    ],
    (GENERATE_SHAPE, "; the versions served are v1beta and v1."): [
        f"/{version}/{model}:{verb}"
        for version in ("v1beta1", "v2", "v1alpha", "v1beta2", "v3main")
        for model in ("models/m", "models/org/m:8b", "publishers/google/models/m")
        for verb in ("generateContent", "streamGenerateContent", "embedContent")
    ],
    # The base URL is right, so the message has no hint about it; a key makes no difference.
    (GENERATE_SHAPE, "."): [
        f"/{version}/models/m:{verb}"
        for version in ("v1", "v1beta")
        for verb in ("batchGenerateContent", "predict",
                     "predictLongRunning", "generateAnswer", "GenerateContent")
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "advice", "path"), [(*key, path) for key, paths in UNKNOWN.items() for path in paths]
)
async def test_the_advice_for_an_unknown_path(served, shape, advice, path):
    answer = await served.ask("POST", path, None, b"{}")
    assert (answer.status, shape_of(answer)) == (404, shape)
    assert answer.json["error"]["message"] == f"No such endpoint: POST {path}{advice}"


SHAPES = {
    CHAT_SHAPE: [
        ("/v1/files", {}), ("/v1/files", VERSION), ("/v1/files", GOOGLE),
        ("/nothing", {}), ("/nothing", {"Authorization": "Bearer x"}), ("/nothing?monkey=x", {}),
        ("/chat/completions", VERSION), ("/v1/responses/resp_1/nothing", VERSION),
        ("/responses", VERSION | GOOGLE), ("/v1beta/chat/completions", GOOGLE),
        ("/v1/models/", {}), ("/v2/models", {}),
    ],
    MESSAGES_SHAPE: [
        ("/v1/messages/batches", {}), ("/v1/messages/batches", VERSION), ("/messages", {}),
        ("/v1/messages/batches", GOOGLE), ("/messages", GOOGLE), ("/nothing", VERSION),
        ("/nothing", {"compat-version": "2023-06-01"}), ("/nothing", {"X-Api-Key": "x"}),
        ("/v1/models/", VERSION), ("/models", VERSION),
    ],
    GENERATE_SHAPE: [
        ("/v1beta/files", {}), ("/v1beta/cachedContents", VERSION), ("/v1beta/models/", VERSION),
        ("/v1beta/", {"Authorization": "Bearer x"}), ("/nothing?key=x", VERSION),
        ("/v1beta1/models/m:generateContent", VERSION), ("/v1/models/", GOOGLE),
        ("/models", GOOGLE), ("/nothing", GOOGLE), ("/nothing", GOOGLE | VERSION),
        ("/v1alpha/models", GOOGLE),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("shape", "path", "headers"), [(shape, *one) for shape, ones in SHAPES.items() for one in ones]
)
async def test_the_shape_of_an_unknown_path(served, path, headers, shape):
    answer = await served.ask("GET", path, headers)
    assert (answer.status, shape_of(answer)) == (404, shape)
    path = path.partition("?")[0]
    assert answer.json["error"]["message"].startswith(f"No such endpoint: GET {path}")
    check_ids(answer)


@pytest.mark.parametrize("end", ["", "/chat/completions", "/messages", "/v1/messages/v1/messages"])
async def test_only_so_much_of_a_path_is_shown(served, end):
    answer = await served.ask("GET", "/" + "x" * 60_000 + end)
    assert answer.status == 404 and len(answer.body) < 600


async def test_a_path_cannot_break_out_of_the_answer(served):
    answer = await served.ask("GET", '/"},{"x":"<script>%22%0d%0a')
    assert answer.status == 404
    assert '/"},{"x":"<script>%22%0d%0a' in answer.json["error"]["message"]
