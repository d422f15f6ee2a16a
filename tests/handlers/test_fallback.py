"""Probes of clients, and paths that are no endpoint."""

import pytest

from tests.handlers.dialects import check_ids
from tests.handlers.test_connection import VERSION
from tests.handlers.test_server import BASE_URL, serving

CHAT, MESSAGES = f"{BASE_URL}/v1", BASE_URL
CHAT_SHAPE, MESSAGES_SHAPE = "invalid_request_error", "not_found_error"


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


WITHOUT = [
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
    ],
)
async def test_the_shape_of_an_unknown_path(path, headers, shape):
    async with serving() as served:
        answer = await served.ask("GET", path, headers)
        assert (answer.status, answer.json["error"]["type"]) == (404, shape)
        assert answer.json["error"]["message"].startswith(f"No such endpoint: GET {path}")
        check_ids(answer)


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
