"""Probes of clients, and paths that are no endpoint."""

import pytest

from tests.support.dialects import check_ids
from tests.support.served import BASE_URL, VERSION, serving

CHAT, MESSAGES = f"{BASE_URL}/v1", BASE_URL
CHAT_SHAPE, MESSAGES_SHAPE, GENERATE_SHAPE = "invalid_request_error", "not_found_error", "NOT_FOUND"
GOOGLE = {"x-goog-api-key": "x"}


def shape_of(answer):
    """The word by which the three shapes of a 404 differ."""
    error = answer.json["error"]
    return error["status"] if "status" in error else error["type"]


PROBES = {"/": b'{"service":"sluice"}', "/livez": b'{"live":true}'}


@pytest.mark.parametrize("path", PROBES)
async def test_probes(path):
    body = PROBES[path]
    async with serving() as served:
        answer = await served.ask("GET", path)
        assert (answer.status, answer.body) == (200, body)
        assert answer.headers["content-type"] == "application/json"
        check_ids(answer)
        assert (await served.ask("HEAD", path)).headers["content-length"] == str(len(body))


@pytest.mark.parametrize("path", ["/", "/livez"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_of_probes(path, method):
    async with serving() as served:
        peer = await served.peer()
        answer = await peer.ask(method, path, None, b"{}")
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")
        assert answer.json["error"]["message"] == "Use GET, HEAD for this endpoint."
        assert (await peer.ask("GET", path)).status == 200


DOUBLED = [
    ("/v1/chat/completions/chat/completions", "/v1/chat/completions", CHAT),
    ("/v1/chat/completions/v1/chat/completions", "/v1/chat/completions/v1", CHAT),
    ("/v1/v1/chat/completions", "/v1/v1", CHAT),
    ("/v1beta/v1/chat/completions", "/v1beta/v1", CHAT),
    ("/v1/messages/chat/completions", "/v1/messages", CHAT),
    ("/v1/messages/v1/messages", "/v1/messages", MESSAGES),
    ("/v1/messages/v1/messages/", "/v1/messages", MESSAGES),
    ("/v1/messages/messages", "/v1/messages", MESSAGES),
    ("/v1/v1/messages", "/v1", MESSAGES),
    ("/v1/v1/messages/count_tokens", "/v1", MESSAGES),
    ("/v1beta/v1/messages", "/v1beta", MESSAGES),
    ("/v1/chat/completions/v1/messages", "/v1/chat/completions", MESSAGES),
    ("/v1/responses/v1/responses", "/v1/responses/v1", CHAT),
    ("/v1/responses/responses", "/v1/responses", CHAT),
    ("/v1/v1/responses", "/v1/v1", CHAT),
    ("/v1/v1/responses/", "/v1/v1", CHAT),
    ("/v1beta/v1/responses", "/v1beta/v1", CHAT),
    ("/v1/v1/responses/input_tokens", "/v1/v1", CHAT),
    ("/v1/responses/v1/responses/compact", "/v1/responses/v1", CHAT),
    ("/v1/chat/completions/responses", "/v1/chat/completions", CHAT),
    ("/v1/responses/chat/completions", "/v1/responses", CHAT),
    ("/v1/v1/embeddings", "/v1/v1", CHAT),
    ("/v1/v1/responses/resp_1", "/v1/v1", CHAT),
    ("/v1/v1", "/v1/v1", CHAT),
]


@pytest.mark.parametrize(("path", "part", "right"), DOUBLED)
async def test_a_base_url_with_too_much_in_it(path, part, right):
    async with serving() as served:
        answer = await served.ask("POST", path, None, b"{}")
        assert answer.status == 404
        error = answer.json["error"]
        assert error["message"] == (
            f"No such endpoint: the base URL already contains {part}; set it to {right}."
        )
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
async def test_a_base_url_with_a_version_in_front_of_a_model(before, part, model, verb):
    async with serving() as served:
        path = f"{before}/models/{model}:{verb}?alt=sse"
        answer = await served.ask("POST", path, {"Authorization": "Bearer x"}, b"{}")
        assert list(answer.json) == ["error"]
        assert answer.json["error"] == {
            "code": 404,
            "message": f"No such endpoint: the base URL already contains {part}; "
            f"set it to {BASE_URL}.",
            "status": GENERATE_SHAPE,
        }
        check_ids(answer)


@pytest.mark.parametrize(
    ("path", "headers", "part", "right", "shape"),
    [
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
    ],
)
async def test_a_list_behind_two_versions(path, headers, part, right, shape):
    async with serving() as served:
        answer = await served.ask("GET", path, headers)
        assert (answer.status, shape_of(answer)) == (404, shape)
        told = f"No such endpoint: the base URL already contains {part}; set it to {right}."
        assert answer.json["error"]["message"] == told


WITHOUT = [
    ("/responses", CHAT),
    ("/openai/v1/responses", CHAT),
    ("/v1beta/responses", CHAT),
    ("/v1/responses/", CHAT),
    ("/responses/input_tokens", CHAT),
    ("/api/responses/compact", CHAT),
    ("/models", CHAT),
    ("/chat/completions", CHAT),
    ("/api/chat/completions", CHAT),
    ("/openai/v1/chat/completions", CHAT),
    ("/v1/chat/completions/", CHAT),
    ("/v1beta/chat/completions", CHAT),
    ("/messages", MESSAGES),
    ("/anthropic/v1/messages", MESSAGES),
    ("/messages/count_tokens", MESSAGES),
    ("/v1/count_tokens/messages", MESSAGES),
    ("/v1/messages/", MESSAGES),
]


@pytest.mark.parametrize(("path", "right"), WITHOUT)
async def test_a_base_url_with_something_else_in_it(path, right):
    async with serving() as served:
        answer = await served.ask("POST", path, None, b"{}")
        assert answer.status == 404
        error = answer.json["error"]
        told = f"No such endpoint: POST {path}; set the base URL to {right}."
        assert error["message"] == told
        assert error["type"] == (CHAT_SHAPE if right == CHAT else MESSAGES_SHAPE)


@pytest.mark.parametrize(
    ("path", "headers", "shape"),
    [
        ("/v1/embeddings", {}, CHAT_SHAPE),
        ("/v1/embeddings", VERSION, CHAT_SHAPE),
        ("/v1/messages/batches", {}, MESSAGES_SHAPE),
        ("/v1/messages/batches", VERSION, MESSAGES_SHAPE),
        ("/nothing", {}, CHAT_SHAPE),
        ("/nothing", {"Authorization": "Bearer x"}, CHAT_SHAPE),
        ("/nothing", VERSION, MESSAGES_SHAPE),
        ("/nothing", {"compat-version": "2023-06-01"}, MESSAGES_SHAPE),
        ("/nothing", {"X-Api-Key": "x"}, MESSAGES_SHAPE),
        ("/messages", {}, MESSAGES_SHAPE),
        ("/chat/completions", VERSION, CHAT_SHAPE),
        ("/v1/embeddings", GOOGLE, CHAT_SHAPE),
        ("/v1/messages/batches", GOOGLE, MESSAGES_SHAPE),
        ("/v1/responses/resp_1/nothing", VERSION, CHAT_SHAPE),
        ("/responses", VERSION | GOOGLE, CHAT_SHAPE),
        ("/messages", GOOGLE, MESSAGES_SHAPE),
        ("/v1beta/files", {}, GENERATE_SHAPE),
        ("/v1beta/cachedContents", VERSION, GENERATE_SHAPE),
        ("/v1beta/models/", VERSION, GENERATE_SHAPE),
        ("/v1beta/", {"Authorization": "Bearer x"}, GENERATE_SHAPE),
        ("/v1beta/chat/completions", GOOGLE, CHAT_SHAPE),
        ("/v1beta1/models/m:generateContent", VERSION, GENERATE_SHAPE),
        ("/v1/models/", {}, CHAT_SHAPE),
        ("/v1/models/", VERSION, MESSAGES_SHAPE),
        ("/v1/models/", GOOGLE, GENERATE_SHAPE),
        ("/models", VERSION, MESSAGES_SHAPE),
        ("/models", GOOGLE, GENERATE_SHAPE),
        ("/nothing", GOOGLE, GENERATE_SHAPE),
        ("/nothing", GOOGLE | VERSION, GENERATE_SHAPE),
        ("/nothing?key=x", VERSION, GENERATE_SHAPE),
        ("/nothing?monkey=x", {}, CHAT_SHAPE),
        ("/v1alpha/models", GOOGLE, GENERATE_SHAPE),
        ("/v2/models", {}, CHAT_SHAPE),
    ],
)
async def test_the_shape_of_an_unknown_path(path, headers, shape):
    async with serving() as served:
        answer = await served.ask("GET", path, headers)
        assert (answer.status, shape_of(answer)) == (404, shape)
        path = path.partition("?")[0]
        assert answer.json["error"]["message"].startswith(f"No such endpoint: GET {path}")
        check_ids(answer)


@pytest.mark.parametrize("verb", ["generateContent", "streamGenerateContent", "embedContent"])
@pytest.mark.parametrize("model", ["models/m", "models/org/m:8b", "publishers/google/models/m"])
@pytest.mark.parametrize("version", ["v1beta1", "v2", "v1alpha", "v1beta2", "v3main"])
async def test_a_version_that_is_not_served(version, model, verb):
    async with serving() as served:
        path = f"/{version}/{model}:{verb}"
        answer = await served.ask("POST", path, {"Authorization": "Bearer x"}, b"{}")
        assert (answer.status, shape_of(answer)) == (404, GENERATE_SHAPE)
        told = f"No such endpoint: POST {path}; the versions served are v1beta and v1."
        assert answer.json["error"]["message"] == told


VERBS = ["embedContent", "batchEmbedContents", "batchGenerateContent", "predict",
         "predictLongRunning", "generateAnswer", "GenerateContent"]  # fmt: skip


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("version", ["v1", "v1beta"])
async def test_what_is_not_offered_of_a_model(version, verb):
    """The base URL is right, so nothing is said about it; nor does a key matter."""
    async with serving() as served:
        path = f"/{version}/models/m:{verb}"
        answer = await served.ask("POST", path, None, b"{}")
        assert (answer.status, shape_of(answer)) == (404, GENERATE_SHAPE)
        assert answer.json["error"]["message"] == f"No such endpoint: POST {path}."


@pytest.mark.parametrize("before", ["", "/gemini", "/proxy/v1beta", "/api/v1"])
async def test_a_call_of_a_model_at_another_place(before):
    async with serving() as served:
        path = f"{before}/models/m:generateContent"
        answer = await served.ask("POST", path, None, b"{}")
        assert (answer.status, shape_of(answer)) == (404, GENERATE_SHAPE)
        told = f"No such endpoint: POST {path}; set the base URL to {BASE_URL}."
        assert answer.json["error"]["message"] == told


@pytest.mark.parametrize("end", ["", "/chat/completions", "/messages", "/v1/messages/v1/messages"])
async def test_only_so_much_of_a_path_is_shown(end):
    async with serving() as served:
        answer = await served.ask("GET", "/" + "x" * 60_000 + end)
        assert answer.status == 404 and len(answer.body) < 600


async def test_a_path_cannot_break_out_of_the_answer():
    async with serving() as served:
        answer = await served.ask("GET", '/"},{"x":"<script>%22%0d%0a')
        assert answer.status == 404
        assert '/"},{"x":"<script>%22%0d%0a' in answer.json["error"]["message"]


async def test_the_body_of_an_unknown_path_passes_by():
    async with serving() as served:
        peer = await served.peer()
        answer = await peer.ask("POST", "/nothing", None, bytes(1_000_000))
        assert answer.status == 404 and "connection" not in answer.headers
        assert (await peer.ask("GET", "/livez")).status == 200
