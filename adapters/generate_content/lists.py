"""Lists of models in the generate-content family: pages, and one model. Imported by this folder's
two sides."""

from collections.abc import Mapping, Sequence
from typing import Any

from adapters.family import ModelEntry, listed
from adapters.faults import wrong_value
from adapters.json.jsonio import dumps

DEFAULT_PAGE = 50
MAX_PAGE = 1000

_METHODS = ["generateContent", "countTokens"]


def page(models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
    """The page that ``pageSize`` and ``pageToken`` ask for; INVALID_FIELD when they cannot be
    meant.

    A larger page than the largest is cut to it, and 0 asks for the default, as the vendor does.
    The token is the last name of the page before: INVALID_FIELD too when the list has it no more.
    """
    size = _size(query.get("pageSize"))
    first = _after(models, query.get("pageToken"))
    last = min(first + size, len(models))
    body: dict[str, object] = {"models": [_fields(model) for model in models[first:last]]}
    if last < len(models):
        # Absent on the last page: to the JavaScript SDK an empty token is one more page.
        body["nextPageToken"] = models[last - 1].name
    return dumps(body)


def names(body: bytes) -> list[str]:
    """The models in a vendor's page that can generate; UPSTREAM_INVALID when it is no page."""
    able = [entry for entry in listed.page(body, "models") if _generates(entry)]
    return [name.removeprefix("models/") for name in listed.names(able, "name")]


def _generates(entry: Mapping[str, Any]) -> bool:
    methods = entry.get("supportedGenerationMethods")
    return not isinstance(methods, list) or _METHODS[0] in methods


def entry(model: ModelEntry) -> bytes:
    """The body that shows one model."""
    return dumps(_fields(model))


def _size(text: str | None) -> int:
    if not text:
        return DEFAULT_PAGE
    # Nine digits are more than any page has; int() would take "+5", "5_0" and any length.
    if not (text.isascii() and text.isdecimal() and len(text) <= 9):
        raise wrong_value("pageSize", f"expected an integer from 0 to {MAX_PAGE}")
    return min(int(text), MAX_PAGE) or DEFAULT_PAGE


def _after(models: Sequence[ModelEntry], token: str | None) -> int:
    if not token:
        return 0
    for position, model in enumerate(models):
        if model.name == token:
            return position + 1
    raise wrong_value("pageToken", "expected the nextPageToken of the page before")


def _fields(model: ModelEntry) -> dict[str, object]:
    fields: dict[str, object] = {"name": f"models/{model.name}", "displayName": model.name}
    if model.context_tokens is not None:
        fields["inputTokenLimit"] = model.context_tokens
    if model.max_output_tokens is not None:
        fields["outputTokenLimit"] = model.max_output_tokens
    return {**fields, "supportedGenerationMethods": _METHODS}
