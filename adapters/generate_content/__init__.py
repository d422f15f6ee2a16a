"""The generate-content family: ``POST /v1beta/models/{model}:generateContent``, streams and
counts.

The path names the model and whether the answer is a stream. Source of its facts: the types and
behaviour of the official Google Gen AI SDKs. Imported by ``registry`` only.
"""

from adapters.family import Family
from adapters.generate_content.client import CLIENT
from adapters.generate_content.upstream import UPSTREAM

FAMILY = Family("generate_content", CLIENT, UPSTREAM)
