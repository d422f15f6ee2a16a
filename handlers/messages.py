"""POST /v1/messages and /v1/messages/count_tokens."""

from adapters.registry import FAMILIES
from handlers.inference import InferenceHandler


class MessagesHandler(InferenceHandler):
    """Messages, plain and streamed; any query string (`beta=true`) is ignored."""

    FAMILY = FAMILIES["messages"]
    OPERATION = FAMILY.operations["create"]


class CountTokensHandler(InferenceHandler):
    """Token counts of a messages request: free of charge, recorded."""

    FAMILY = FAMILIES["messages"]
    OPERATION = FAMILY.operations["count_tokens"]
