"""The URL table of the relay port, and which handler a path gets.

Paths are looked up in one dictionary: a list of patterns costs more with each route.
"""

from adapters.family import Family
from handlers.entries.chat_completions import ChatCompletionsHandler
from handlers.entries.fallback import FallbackHandler, LivezHandler, RootHandler
from handlers.entries.generate_content import GenerateContentHandler, is_call, verb_of
from handlers.entries.messages import CountTokensHandler, MessagesHandler
from handlers.entries.models import PREFIXES, ModelsHandler
from handlers.entries.responses import (
    CompactHandler,
    InputTokensHandler,
    ResponsesHandler,
    StoredResponseHandler,
    is_stored,
)
from handlers.entries.stream_check import PATH as STREAM_CHECK
from handlers.entries.stream_check import StreamCheckHandler
from handlers.http.base import Site
from handlers.http.intake import BodyHandler
from handlers.http.request import Request
from handlers.http.run import HandlerRun

ROUTES: dict[str, type[BodyHandler]] = {
    "/": RootHandler,
    "/livez": LivezHandler,
    "/v1/chat/completions": ChatCompletionsHandler,
    "/v1/responses": ResponsesHandler,
    "/v1/responses/input_tokens": InputTokensHandler,
    "/v1/responses/compact": CompactHandler,
    "/v1/messages": MessagesHandler,
    "/v1/messages/count_tokens": CountTokensHandler,
    "/v1/models": ModelsHandler,
    "/v1beta/models": ModelsHandler,
    STREAM_CHECK: StreamCheckHandler,
}


class Router:
    """Finds the handler class of a request by its path."""

    def __init__(self, site: Site) -> None:
        self._site = site

    def delegate(self, request: Request) -> HandlerRun:
        """The run of the handler that takes the request."""
        path = request.path
        handler = ROUTES.get(path) or _by_pattern(path, request.method)
        return HandlerRun(handler(request, self._site))

    def dialect(self, request: Request) -> Family:
        """The family whose error shape a request gets."""
        return self.delegate(request).handler.dialect


def _by_pattern(path: str, method: str | None) -> type[BodyHandler]:
    """The handler of a path that names something: a model, a stored response."""
    if is_stored(path):
        return StoredResponseHandler
    if is_call(path):
        return GenerateContentHandler
    names_model = any(path.startswith(p + "/") and path != p + "/" for p in PREFIXES)
    # A model's name may end like a verb; read, it is a name.
    if names_model and (method in ("GET", "HEAD") or not verb_of(path)):
        return ModelsHandler
    return FallbackHandler
