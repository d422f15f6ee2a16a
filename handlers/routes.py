"""The URL table of the relay port, and how a path finds its handler.

Paths are compared exactly, in one dictionary: a pattern list costs a microsecond a route.
"""

from collections.abc import Callable

from tornado import httputil
from tornado.routing import Router
from tornado.web import Application, RequestHandler

from handlers.base import Site
from handlers.chat_completions import ChatCompletionsHandler
from handlers.fallback import FallbackHandler, LivezHandler, RootHandler
from handlers.messages import CountTokensHandler, MessagesHandler
from handlers.models import PREFIX as MODELS
from handlers.models import ModelsHandler

ROUTES: dict[str, type[RequestHandler]] = {
    "/": RootHandler,
    "/livez": LivezHandler,
    "/v1/chat/completions": ChatCompletionsHandler,
    "/v1/messages": MessagesHandler,
    "/v1/messages/count_tokens": CountTokensHandler,
    MODELS: ModelsHandler,
}


class RelayRouter(Router):
    """Finds the handler class of a request by its path."""

    def __init__(self, site: Site, head_is_here: Callable[[httputil.HTTPConnection], None]) -> None:
        self._kwargs = {"site": site}
        self._head_is_here = head_is_here
        self._application = Application(log_function=_no_access_log)

    def find_handler(
        self, request: httputil.HTTPServerRequest, **kwargs: object
    ) -> httputil.HTTPMessageDelegate:
        """The delegate that takes the request's body and answers it."""
        assert request.connection is not None
        self._head_is_here(request.connection)
        path = request.path
        handler = ROUTES.get(path)
        if handler is None:
            one_model = path.startswith(MODELS + "/") and len(path) > len(MODELS) + 1
            handler = ModelsHandler if one_model else FallbackHandler
        return self._application.get_handler_delegate(request, handler, self._kwargs)


def _no_access_log(handler: RequestHandler) -> None:
    """The relay writes its own line for each call; Tornado's costs 16 to 35 us."""
