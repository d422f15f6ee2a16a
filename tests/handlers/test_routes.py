"""Which handler a path finds."""

import pytest

from adapters.registry import FAMILIES
from handlers import routes
from handlers.chat_completions import ChatCompletionsHandler
from handlers.fallback import FallbackHandler, LivezHandler, RootHandler
from handlers.messages import CountTokensHandler, MessagesHandler
from handlers.models import ModelsHandler
from handlers.request import Request, RequestHeaders
from handlers.routes import ROUTES, Router
from tests.handlers.client import encode_head
from tests.handlers.test_server import serving

FOUND = {
    "/": RootHandler,
    "/livez": LivezHandler,
    "/v1/chat/completions": ChatCompletionsHandler,
    "/v1/messages": MessagesHandler,
    "/v1/messages/count_tokens": CountTokensHandler,
    "/v1/models": ModelsHandler,
    "/v1/models/some-model": ModelsHandler,
    "/v1/models/some/model": ModelsHandler,
    "/v1/models/some%2Fmodel": ModelsHandler,
    "/v1/models/": FallbackHandler,
    "/v1/modelsx": FallbackHandler,
    "/v1/chat/completions/": FallbackHandler,
    "/v1//chat/completions": FallbackHandler,
    "/v1/Messages": FallbackHandler,
    "/v1/chat%2Fcompletions": FallbackHandler,
    "//": FallbackHandler,
    "/metrics": FallbackHandler,
    "/.env": FallbackHandler,
}


class Connection:
    peer = "198.51.100.7"

    def set_close_callback(self, callback):
        pass


@pytest.mark.parametrize("path", FOUND)
def test_a_path_finds_its_handler(path, monkeypatch):
    found = []
    monkeypatch.setattr(routes, "HandlerRun", found.append)
    headers = RequestHeaders([])
    Router("the site").delegate(Request(Connection(), "GET", path, headers))
    [handler] = found
    assert (type(handler), handler.request.path, handler.site) == (FOUND[path], path, "the site")


@pytest.mark.parametrize("query", ["", "?", "?beta=true", "?/v1/models"])
async def test_a_query_does_not_matter(query):
    async with serving() as served:
        assert (await served.ask("GET", "/livez" + query)).body == b'{"live":true}'


def test_the_endpoints_are_those_of_their_families():
    for path, handler in ROUTES.items():
        if hasattr(handler, "family"):
            assert handler.operation in FAMILIES[handler.family.name].operations.values()
            assert path == handler.operation.endpoint


async def test_nothing_of_tornado_shows():
    """No page, no header, no redirect of the library below."""
    async with serving() as served:
        for target in ("/nothing", "/static/x.js", "/favicon.ico", "/v1/models/../../etc/passwd"):
            peer = await served.peer(encode_head("GET", target))
            answer = await peer.answer()
            assert answer.status in (401, 404)
            assert answer.headers["content-type"] == "application/json"
            assert b"ornado" not in answer.head + answer.body
            assert not {"etag", "location", "set-cookie"} & answer.headers.keys()
