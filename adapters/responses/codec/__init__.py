"""What translates the responses family: between its wire and the hub's words.

Source of its facts: the types and behaviour of the official OpenAI SDKs and of Codex. Imported by
the registry only.
"""

from adapters.family.codec import Codecs
from adapters.responses.codec.client import CLIENT
from adapters.responses.codec.upstream import UPSTREAM

CODECS = Codecs(CLIENT, UPSTREAM)
