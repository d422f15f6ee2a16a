"""The messages family: ``POST /v1/messages`` and ``POST /v1/messages/count_tokens``.

Source of its facts: the types and behaviour of the official Anthropic SDKs. Imported by
``registry`` only.
"""

from adapters.family import Family
from adapters.messages.client import CLIENT
from adapters.messages.upstream import UPSTREAM

FAMILY = Family("messages", CLIENT, UPSTREAM)
