"""Facts shared by clients of chat completions and of responses: errors, lists of models,
heartbeats.

The SDK chooses the exception class by the status alone and copies type, code and param from the
body. Source: the types and behaviour of the official OpenAI SDKs. Imported by the two families.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence

from adapters.family import Envelope, ModelEntry, Operation
from adapters.family.fault_table import FAULT_TABLE
from adapters.family.headers import refusal_headers
from adapters.faults import Fault
from adapters.json.jsonio import dumps

# To some readers, a blank line after a comment would be an empty event.
COMMENT = b": keep-alive\n"
MAX_NAME_CHARS = 64  # of the name of a tool, a user or a cache

_NAME = re.compile(rf"[a-zA-Z0-9_-]{{1,{MAX_NAME_CHARS}}}")
_OTHER = re.compile(r"[^a-zA-Z0-9_-]")
_HASH_CHARS = 8

LIST_MODELS = Operation("/v1/models", "list_models", free=True)


def model_list(models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
    """Encode the complete list on one page."""
    return dumps({"object": "list", "data": [_fields(model) for model in models]})


def model_entry(model: ModelEntry) -> bytes:
    """Encode the body that describes one model."""
    return dumps(_fields(model))


def _fields(model: ModelEntry) -> dict[str, object]:
    fields: dict[str, object] = {"id": model.name, "object": "model", "created": model.created_s}
    paths = {"endpoints": list(model.endpoints)} if model.endpoints else {}
    return {**fields, "owned_by": "gateway", **paths}


def keep_alive(started: bool, number: int | None = None) -> bytes:
    """Return a comment, which every client of these families skips."""
    return COMMENT


def envelope(fault: Fault, error: dict[str, str | None]) -> Envelope:
    """Return the answer to a refused or failed call. ``error``: from ``error_of``."""
    status, _ = FAULT_TABLE[fault.condition].openai
    return Envelope(status, refusal_headers(fault), dumps({"error": error}))


def error_of(fault: Fault) -> dict[str, str | None]:
    """Return the error object: message, type, param and code."""
    _, kind = FAULT_TABLE[fault.condition].openai
    return {"message": fault.message, "type": kind, "param": fault.param, "code": fault.code}


def short_name(name: str) -> str:
    """Return the name of a user or a cache, shortened to the length that upstreams accept."""
    return name if len(name) <= MAX_NAME_CHARS else digest_of(name)


def digest_of(name: str) -> str:
    """Return the hash of a name, in 64 hexadecimal digits."""
    return hashlib.sha256(name.encode(errors="replace")).hexdigest()


def fit_name(name: str) -> str:
    """Return the name of a tool if upstreams accept it, otherwise its ``hashed_name``."""
    return name if _NAME.fullmatch(name) else hashed_name(name)


def hashed_name(name: str) -> str:
    """Return a name that upstreams accept, always the same for the same input."""
    digest = digest_of(name)[:_HASH_CHARS]
    return f"{_OTHER.sub('_', name)[: MAX_NAME_CHARS - _HASH_CHARS - 1]}_{digest}"
