"""POST /v1/chat/completions."""

from adapters.registry import FAMILIES
from handlers.inference import InferenceHandler


class ChatCompletionsHandler(InferenceHandler):
    """Chat completions, plain and streamed."""

    FAMILY = FAMILIES["chat_completions"]
    OPERATION = FAMILY.operations["create"]
