"""/v1/responses: create, count, compact, and what an upstream has stored."""

from collections.abc import Awaitable

from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.base import Site
from handlers.inference import InferenceHandler

PREFIX = "/v1/responses/"
_FAMILY = FAMILIES["responses"]
# what follows the id in a path -> operation, methods
_STORED = {
    "": ("stored", ("GET", "DELETE")),
    "cancel": ("cancel", ("POST",)),
    "input_items": ("input_items", ("GET",)),
}


class ResponsesHandler(InferenceHandler):
    """Responses, plain and streamed."""

    family = _FAMILY
    operation = _FAMILY.operations["create"]

    def check_head(self) -> Awaitable[None] | None:
        """As ever; but a client that asks for a websocket is told at once that there is none."""
        request = self.request
        if request.method == "GET" and "websocket" in request.headers.get("upgrade", "").lower():
            raise Fault(Condition.UPGRADE_NOT_SUPPORTED)
        return super().check_head()


class InputTokensHandler(InferenceHandler):
    """Token counts of a responses request: free of charge, recorded."""

    family = _FAMILY
    operation = _FAMILY.operations["input_tokens"]


class CompactHandler(InferenceHandler):
    """Compaction of a conversation, a whole answer."""

    family = _FAMILY
    operation = _FAMILY.operations["compact"]


class StoredResponseHandler(InferenceHandler):
    """A stored response by its id: passed on to the one channel that can know it."""

    READS_BODY = False
    family = _FAMILY

    def initialize(self, site: Site) -> None:
        """Takes operation and id out of the path."""
        super().initialize(site)
        self.target, _, what = self.request.path.removeprefix(PREFIX).partition("/")
        name, self.methods = _STORED[what]
        self.operation = _FAMILY.operations[name]


def is_stored(path: str) -> bool:
    """Whether a path names something stored."""
    found, _, what = path.removeprefix(PREFIX).partition("/")
    return path.startswith(PREFIX) and found != "" and what in _STORED
