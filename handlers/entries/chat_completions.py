"""POST /v1/chat/completions."""

from adapters.registry import FAMILIES
from handlers.entries.inference import InferenceHandler


class ChatCompletionsHandler(InferenceHandler):
    """Chat completions, plain and streamed."""

    family = FAMILIES["chat_completions"]
    operation = family.client.operations["generate"]
