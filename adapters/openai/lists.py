"""Lists of models as chat completions and responses show them. Imported by the two families."""

from collections.abc import Sequence

from adapters.family import ModelEntry
from adapters.json.jsonio import dumps


def model_list(models: Sequence[ModelEntry]) -> bytes:
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
