"""Lists of models in the messages family: pages, and one model. Imported by this folder's two
sides."""

import datetime
from collections.abc import Mapping, Sequence

from adapters.family import ModelEntry
from adapters.faults import wrong_value
from adapters.json.jsonio import dumps

DEFAULT_PAGE = 20
MAX_PAGE = 1000


def page(models: Sequence[ModelEntry], query: Mapping[str, str]) -> bytes:
    """The page that ``limit``, ``after_id`` and ``before_id`` ask for; INVALID_FIELD for a limit
    out of range.

    An id that is gone (the list changed between two pages) gives an empty page.
    """
    limit = _limit(query.get("limit"))
    names = [model.name for model in models]
    first, last = 0, len(names)
    before, after = query.get("before_id"), query.get("after_id")
    if before is not None:
        last = names.index(before) if before in names else 0
        first = max(0, last - limit)
        more = first > 0
    else:
        if after is not None:
            first = names.index(after) + 1 if after in names else len(names)
        last = min(last, first + limit)
        more = last < len(names)
    shown = models[first:last]
    return dumps(
        {
            "data": [_fields(model) for model in shown],
            "has_more": more,
            "first_id": shown[0].name if shown else None,
            "last_id": shown[-1].name if shown else None,
        }
    )


def entry(model: ModelEntry) -> bytes:
    """The body that shows one model."""
    return dumps(_fields(model))


def _limit(text: str | None) -> int:
    if text is None:
        return DEFAULT_PAGE
    # Four digits hold the largest page; int() would take "+5", "5_0" and any length.
    if not (text.isascii() and text.isdecimal() and len(text) <= 4 and 1 <= int(text) <= MAX_PAGE):
        raise wrong_value("limit", f"expected an integer from 1 to {MAX_PAGE}")
    return int(text)


def _fields(model: ModelEntry) -> dict[str, object]:
    created = datetime.datetime.fromtimestamp(model.created_s, datetime.UTC)
    return {
        "type": "model",
        "id": model.name,
        "display_name": model.name,
        "created_at": created.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "lifecycle": "active",
        "max_input_tokens": model.context_tokens,
        "max_tokens": model.max_output_tokens,
    }
