"""POST /v1/messages and /v1/messages/count_tokens."""

from adapters.registry import FAMILIES
from handlers.entries.inference import InferenceHandler


class MessagesHandler(InferenceHandler):
    """Messages, plain and streamed; any query string (`beta=true`) is ignored."""

    family = FAMILIES["messages"]
    operation = family.client.operations["generate"]


class CountTokensHandler(InferenceHandler):
    """Token counts of a messages request: free of charge, recorded."""

    family = FAMILIES["messages"]
    operation = family.client.operations["count"]
