"""The handler for each path."""

import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from adapters.endpoints.table import ENDPOINTS
from adapters.registry import FAMILIES
from handlers.entries import inference, routes
from handlers.entries.fallback import FallbackHandler, LivezHandler, RootHandler
from handlers.entries.models import ModelsHandler
from handlers.entries.routes import ROUTES, Router
from handlers.http.request import Request

FOUND = {
    "/": RootHandler,
    "/livez": LivezHandler,
    "/v1/chat/completions": inference.ChatCompletionsHandler,
    "/v1/messages": inference.MessagesHandler,
    "/v1/messages/count_tokens": inference.CountTokensHandler,
    "/v1/responses": inference.ResponsesHandler,
    "/v1/responses/input_tokens": inference.InputTokensHandler,
    "/v1/responses/compact": inference.CompactHandler,
    # a read asks for a model by its name, whatever follows a colon
    **dict.fromkeys((
        "/v1/models", "/v1/models/some-model", "/v1/models/some/model", "/v1/models/some%2Fmodel",
        "/v1beta/models", "/v1beta/models/some/model", "/v1/models/some:model",
        "/v1beta/models/m:predict",
    ), ModelsHandler),
    **dict.fromkeys((
        "/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/v1/responses/resp_1/input_items",
    ), inference.StoredResponseHandler),
    **dict.fromkeys((
        "/v1/models/", "/v1/modelsx", "/v1/chat/completions/", "/v1//chat/completions",
        "/v1/Messages", "/v1/chat%2Fcompletions", "//", "/metrics", "/.env",
        "/v1/responses/resp_1/other", "/v1/responses/", "/v1beta/responses", "/v1beta/models/",
        "/v1beta/messages", "/v1alpha/models",
    ), FallbackHandler),
}  # fmt: skip
POSTED = {
    **dict.fromkeys(
        (f"/{version}/models/{model}:{verb}"
         for version in ("v1", "v1beta")
         for model in ("m", "vendor/qwen3:8b", "models/m", "vendor%2Fm", "a:generateContent")
         for verb in ("generateContent", "streamGenerateContent", "countTokens")),
        inference.GenerateContentHandler,
    ),
    **dict.fromkeys((
        "/v1/models", "/v1beta/models/m", "/v1beta/models/vendor/qwen3:8b",
        "/v1beta/models/m:generateContent/",
    ), ModelsHandler),
    "/v1/responses": inference.ResponsesHandler,
    **dict.fromkeys((
        "/v1beta/models/m:predict", "/v1/models/m:batchGenerateContent",
        "/v1beta/models/m:generatecontent", "/v1beta1/models/m:generateContent",
        "/v2/models/m:generateContent", "/v1beta/v1/models/m:generateContent",
        "/v1/v1beta/models/m:generateContent", "/v1beta//models/m:generateContent",
        "/models/m:generateContent", "/v1/v1/responses", "/v1/responses/v1/responses",
    ), FallbackHandler),
}  # fmt: skip
CONTEXT = [*(("GET", path) for path in FOUND), *(("POST", path) for path in POSTED)]


def handler_of(method, path, monkeypatch):
    """Return the handler that the router finds for a request."""
    runs = []
    monkeypatch.setattr(routes, "HandlerRun", runs.append)
    Router("the site").delegate(Request(SimpleNamespace(peer="198.51.100.7"), method, path, {}))
    [handler] = runs
    return handler


@pytest.mark.parametrize(("method", "path"), CONTEXT)
def test_a_path_finds_its_handler(method, path, monkeypatch):
    handler = handler_of(method, path, monkeypatch)
    expected = (FOUND if method == "GET" else POSTED)[path]
    assert (type(handler), handler.request.path, handler.site) == (expected, path, "the site")


@pytest.mark.parametrize("query", ["", "?", "?beta=true", "?/v1/models"])
async def test_a_query_does_not_matter(served, query):
    assert (await served.ask("GET", "/livez" + query)).body == b'{"live":true}'


WIRE = Path(__file__).resolve().parents[3] / "docs" / "wire"
SERVED = [
    (page.stem, method, path)
    for page in sorted(WIRE.glob("*.md"))
    for row in re.findall(r"^\| (`[A-Z].*?) \|", page.read_text(), re.MULTILINE)
    for methods, path in re.findall(r"((?:`?[A-Z]+`?, )*`?[A-Z]+) (/[^`?]*)", row)
    for method in re.findall("[A-Z]+", methods)
]


@pytest.mark.parametrize(("family", "method", "path"), SERVED)
def test_what_the_documents_call_served_has_a_handler(family, method, path, monkeypatch):
    path = path.replace("{model}", "vendor/m:8b").replace("{id}", "resp_1")
    handler = handler_of(method, path, monkeypatch)
    assert not isinstance(handler, FallbackHandler)
    if hasattr(handler, "family"):
        assert family in (handler.family.name, "endpoints") and method in handler.methods


def test_the_documents_tell_every_endpoint_and_base_url():
    told = {path for _, _, path in SERVED}
    endpoints = {
        op.endpoint for family in FAMILIES.values() for op in family.client.operations.values()
    }
    assert {endpoint.partition("?")[0] for endpoint in (*endpoints, *ENDPOINTS)} <= told
    for family in FAMILIES:
        text = (WIRE / f"{family}.md").read_text()
        base = "{base_url}/v1" if family in ("chat_completions", "responses") else "{base_url}"
        assert f"Base URL for clients: `{base}`" in text


def test_the_endpoints_are_those_of_their_families():
    relayed = {path: handler for path, handler in ROUTES.items() if hasattr(handler, "family")}
    assert {handler.family.name for handler in relayed.values()} == {
        *("chat_completions", "responses", "messages")
    }
    for path, handler in relayed.items():
        assert handler.operation in FAMILIES[handler.family.name].client.operations.values()
        assert path == handler.operation.endpoint


@pytest.mark.parametrize(
    "target", ["/nothing", "/static/x.js", "/favicon.ico", "/v1/models/../../etc/passwd"]
)
async def test_nothing_of_tornado_shows(served, target):
    """Tornado's pages, headers and redirects do not appear."""
    answer = await served.ask("GET", target)
    assert answer.status in (401, 404)
    assert answer.headers["content-type"] == "application/json"
    assert b"ornado" not in answer.head + answer.body
    assert not {"etag", "location", "set-cookie"} & answer.headers.keys()
