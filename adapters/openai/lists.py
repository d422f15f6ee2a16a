"""Lists of models and heartbeats as chat completions and responses have them. Imported by the two
families."""

from collections.abc import Mapping, Sequence

from adapters.family import ModelEntry, Operation
from adapters.json.jsonio import dumps

LIST_MODELS = Operation("/v1/models", "list_models", free=True)


def model_list(models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
    """The whole list on one page."""
    return dumps({"object": "list", "data": [_fields(model) for model in models]})


def model_entry(model: ModelEntry) -> bytes:
    """The body that shows one model."""
    return dumps(_fields(model))


def _fields(model: ModelEntry) -> dict[str, object]:
    return {
        "id": model.name,
        "object": "model",
        "created": model.created_s,
        "owned_by": "gateway",
    }


def keep_alive(started: bool) -> bytes:
    """A comment: every client of these families skips it."""
    return b": keep-alive\n\n"
