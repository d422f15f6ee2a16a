"""The URL table of the relay port, and how a path finds its handler.

Paths are compared exactly, in one dictionary: a list of patterns costs more with each route.
"""

from tornado import httputil
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


class Router:
    """Finds the handler class of a request by its path."""

    def __init__(self, site: Site) -> None:
        self._kwargs = {"site": site}
        # Tornado's own line for each request would cost 16 to 35 us; the relay writes its own.
        self._application = Application(log_function=lambda handler: None)

    def delegate(self, request: httputil.HTTPServerRequest) -> httputil.HTTPMessageDelegate:
        """Who takes the request's body and answers it."""
        path = request.path
        handler = ROUTES.get(path)
        if handler is None:
            one_model = path.startswith(MODELS + "/") and len(path) > len(MODELS) + 1
            handler = ModelsHandler if one_model else FallbackHandler
        return self._application.get_handler_delegate(request, handler, self._kwargs)
