"""What can be asked for in the messages family. Imported by its two sides."""

from adapters.family import Operation

GENERATE = Operation("/v1/messages")
COUNT = Operation("/v1/messages/count_tokens", "count", free=True)
LIST_MODELS = Operation("/v1/models", "list_models", free=True)
