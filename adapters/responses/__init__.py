"""The responses family: ``POST /v1/responses``, its token counts, compaction and stored
responses.

Source of its facts: the types and behaviour of the official OpenAI SDKs. Imported by ``registry``
only.
"""

from adapters.family import Family
from adapters.responses.client import CLIENT
from adapters.responses.upstream import UPSTREAM

FAMILY = Family("responses", CLIENT, UPSTREAM)
