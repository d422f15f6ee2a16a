"""The chat completions family: ``POST /v1/chat/completions``.

Source of its facts: the types and behaviour of the official OpenAI SDKs. Imported by ``registry``
only.
"""

from adapters.chat_completions.client import CLIENT
from adapters.chat_completions.upstream import UPSTREAM
from adapters.family import Family

FAMILY = Family("chat_completions", CLIENT, UPSTREAM)
