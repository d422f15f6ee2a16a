"""What can be asked for in the generate-content family. Imported by its two sides."""

from adapters.family import Operation

_MODEL = "/v1beta/models/{model}:"
_STREAM = _MODEL + "streamGenerateContent"

GENERATE = Operation(_MODEL + "generateContent")
STREAM = Operation(_STREAM, "stream")
STREAM_ARRAY = Operation(_STREAM, "stream", framing="json_array")
COUNT = Operation(_MODEL + "countTokens", "count", free=True)
LIST_MODELS = Operation("/v1beta/models", "list_models", free=True)
