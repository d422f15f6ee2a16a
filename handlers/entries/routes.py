"""The relay port: its URL table, the handler of each path, and its server.

Paths are looked up in one dictionary, because a list of patterns gets slower with each route.
"""

from collections.abc import Sequence

from adapters.endpoints.table import ENDPOINTS
from adapters.family import Family
from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.entries.base import Site
from handlers.entries.cors import is_preflight
from handlers.entries.fallback import (
    FallbackHandler,
    LivezHandler,
    PreflightHandler,
    RootHandler,
)
from handlers.entries.inference import (
    ChatCompletionsHandler,
    CompactHandler,
    CountTokensHandler,
    EndpointHandler,
    GenerateContentHandler,
    InputTokensHandler,
    MessagesHandler,
    ResponsesHandler,
    StoredResponseHandler,
    is_call,
    is_stored,
    verb_of,
)
from handlers.entries.intake import BodyHandler
from handlers.entries.key_view import PATHS as KEY_VIEWS
from handlers.entries.key_view import KeyViewHandler
from handlers.entries.models import PREFIXES, ModelsHandler
from handlers.entries.stream_check import PATH as STREAM_CHECK
from handlers.entries.stream_check import StreamCheckHandler
from handlers.entries.upload import UploadHandler
from handlers.http.connection import Header
from handlers.http.request import Request
from handlers.http.run import HandlerRun
from handlers.http.server import Server
from store.values.ids import new_ulid

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
    **dict.fromkeys(KEY_VIEWS, KeyViewHandler),
    **{
        path: UploadHandler if row.multipart else EndpointHandler
        for path, row in ENDPOINTS.items()
        if "{" not in path
    },
}


class Router:
    """The table of handlers, by the paths of requests."""

    def __init__(self, site: Site) -> None:
        self.site = site

    def delegate(self, request: Request) -> HandlerRun:
        """Return the run of the handler for the request."""
        path = request.path
        if request.method == "OPTIONS" and is_preflight(request.headers, self.site.origins):
            return HandlerRun(PreflightHandler(request, self.site))
        handler = ROUTES.get(path) or _by_pattern(path, request.method)
        return HandlerRun(handler(request, self.site))

    def dialect(self, request: Request) -> Family:
        """Return the family whose error shape a request gets."""
        handler = self.delegate(request).handler
        assert isinstance(handler, BodyHandler)
        return handler.dialect


def _by_pattern(path: str, method: str | None) -> type[BodyHandler]:
    """Return the handler class of a path that names a model or a stored response."""
    if is_stored(path):
        return StoredResponseHandler
    if is_call(path):
        return GenerateContentHandler
    names_model = any(path.startswith(p + "/") and path != p + "/" for p in PREFIXES)
    # A model's name may end like a verb. In GET and HEAD that is part of the name.
    if names_model and (method in ("GET", "HEAD") or not verb_of(path)):
        return ModelsHandler
    return FallbackHandler


class RelayServer(Server):
    """The server of the relay port."""

    def __init__(self, site: Site, connections_max: int) -> None:
        self._router = Router(site)
        super().__init__(site.settings.server, self._router.delegate, connections_max)

    def malformed(
        self, message: str, request: Request | None
    ) -> tuple[int, Sequence[Header], bytes]:
        """Return the answer to a malformed request, in the dialect of its path if it has one."""
        call_id = new_ulid()
        fault = Fault(Condition.INVALID_FIELD, message)
        family = FAMILIES["chat_completions"] if request is None else self._router.dialect(request)
        envelope = family.client.encode_fault(fault, call_id)
        headers = self._router.site.base_headers(call_id, request)
        return envelope.status, (*headers, *envelope.headers.items()), envelope.body
