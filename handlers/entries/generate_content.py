"""POST /v1beta/models/{model}:{verb}, and the same under /v1, where newer SDKs send it."""

import re
from urllib.parse import unquote

from adapters.registry import FAMILIES
from handlers.entries.inference import InferenceHandler
from handlers.http.base import Site

_FAMILY = FAMILIES["generate_content"]
_OPERATIONS = _FAMILY.client.operations
# what a path asks of a model
_VERBS = {
    "generateContent": _OPERATIONS["generate"],
    "streamGenerateContent": _OPERATIONS["stream"],
    "countTokens": _OPERATIONS["count"],
}
# A model's name may hold slashes and colons: it ends at the last colon. It may be empty.
_PATH = re.compile(r"/(?:v1|v1beta)/models/(.*):([A-Za-z]+)")


class GenerateContentHandler(InferenceHandler):
    """Answers, streams as events or as one JSON array, and token counts of the family."""

    family = _FAMILY

    def initialize(self, site: Site) -> None:
        """Takes model and verb out of the path; `alt=sse` asks for events."""
        super().initialize(site)
        match = _PATH.fullmatch(self.request.path)
        assert match is not None
        self.operation = _VERBS[match[2]]
        if self.operation.job == "stream" and self.query_field("alt") != "sse":
            self.operation = _OPERATIONS["stream_array"]
        self.target = unquote(match[1]).removeprefix("models/")


def verb_of(path: str) -> str:
    """What a path asks of a model; empty when it names none, or nothing to ask."""
    match = _PATH.fullmatch(path)
    return match[2] if match else ""


def is_call(path: str) -> bool:
    """Whether a path names a model and something that it can be asked for."""
    return verb_of(path) in _VERBS
