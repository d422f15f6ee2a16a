"""What can be asked for in the chat completions family. Imported by its two sides."""

from adapters.family import Operation

GENERATE = Operation("/v1/chat/completions")
