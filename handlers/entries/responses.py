"""/v1/responses: create, count, compact, and what an upstream has stored."""

import re
from collections.abc import Awaitable

from adapters.faults import Condition, Fault
from adapters.registry import FAMILIES
from handlers.entries.inference import InferenceHandler
from handlers.http.base import Site
from store.catalog.keys import KeyEntry

PREFIX = "/v1/responses/"
_FAMILY = FAMILIES["responses"]
_OPERATIONS = _FAMILY.client.operations
# Ids as vendors make them; anything else might lead to another path of the upstream.
_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,255}")
_ID_SHOWN_MAX = 64
# what follows the id in a path -> job, methods
_STORED = {
    "": ("stored", ("GET", "DELETE")),
    "cancel": ("cancel", ("POST",)),
    "input_items": ("list_input", ("GET",)),
}


class ResponsesHandler(InferenceHandler):
    """Responses, plain and streamed."""

    family = _FAMILY
    operation = _OPERATIONS["generate"]

    def check_head(self) -> Awaitable[None] | None:
        """Refuses websockets at once, then checks as usual."""
        request = self.request
        if request.method == "GET" and "websocket" in request.headers.get("upgrade", "").lower():
            raise Fault(Condition.UPGRADE_NOT_SUPPORTED)
        return super().check_head()


class InputTokensHandler(InferenceHandler):
    """Token counts of a responses request: free of charge, recorded."""

    family = _FAMILY
    operation = _OPERATIONS["count"]


class CompactHandler(InferenceHandler):
    """Compaction of a conversation, a whole answer."""

    family = _FAMILY
    operation = _OPERATIONS["compact"]


class StoredResponseHandler(InferenceHandler):
    """A stored response by its id: passed on to the channel that made it."""

    READS_BODY = False
    LOOKED_INTO = frozenset()
    family = _FAMILY

    def initialize(self, site: Site) -> None:
        """Takes operation and id out of the path."""
        super().initialize(site)
        self.target, _, what = self.request.path.removeprefix(PREFIX).partition("/")
        job, self.methods = _STORED[what]
        self.operation = _OPERATIONS[job]

    def check_key(self, key: KeyEntry) -> None:
        """Checks the id last, so that the record of a wrong one has the key."""
        super().check_key(key)
        assert self.target is not None
        if _ID.fullmatch(self.target) is None:
            raise Fault(Condition.ID_NOT_FOUND, param="id", detail=self.target[:_ID_SHOWN_MAX])


def is_stored(path: str) -> bool:
    """Whether a path names something stored."""
    if not path.startswith(PREFIX) or path.endswith("/"):
        return False
    found, _, what = path.removeprefix(PREFIX).partition("/")
    # "responses" is no id but a base URL that contains the endpoint.
    return found not in ("", "responses") and what in _STORED
