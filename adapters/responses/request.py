"""Requests of the responses family: what is read, edited and sent along.

The body passes as the client sent it but for the model's name; items, tools and fields that are
not read here are the vendor's to judge. Imported by this folder's ``client``.
"""

from adapters.family import Operation, Peek
from adapters.family.conversation import given_name, object_field, opening, text_field
from adapters.family.fields import count, flag, model_name
from adapters.faults import Condition, Fault, wrong_type
from adapters.json.jsonio import Spans

# What may stand in place of `input`: the vendor has the text already.
_INSTEAD_OF_INPUT = ("prompt", "previous_response_id", "conversation")


def peek(spans: Spans, operation: Operation, target: str | None = None) -> Peek:
    """Read the few fields of a request; only the one for a response knows streams and bounds."""
    return _peek_response(spans) if operation.job == "generate" else _peek_other(spans)


def _peek_response(spans: Spans) -> Peek:
    """Read the few fields of a request for a response; raises Fault MODEL_MISSING, INVALID_FIELD,
    FIELD_MISSING with the field's name, UNSUPPORTED for ``background``: what is fetched later
    without a charge cannot be billed.
    """
    other = _peek_other(spans)
    stream = flag(spans, "stream")
    bound = count(spans, "max_output_tokens") or None
    if flag(spans, "background"):
        raise Fault(Condition.UNSUPPORTED, param="background", model=other.model)
    stored = spans.raw("store") != b"false"  # vendors keep what they are not told to forget
    return Peek(other.model, stream, bound, other.choices, other.include_usage, stored)


def _peek_other(spans: Spans) -> Peek:
    """Read the model of a request to count or to compact, and see that there is input; raises
    Fault MODEL_MISSING, INVALID_FIELD, FIELD_MISSING. The answer is never a stream: the field means
    nothing there."""
    model = model_name(spans)
    _check_input(spans)
    return Peek(
        model=model,
        stream=False,
        max_output_tokens=None,
        choices=1,
        include_usage=True,  # streams of the family always show it
    )


def conversation(spans: Spans) -> bytes:
    """What names the conversation. Not ``previous_response_id``, which is another in each turn."""
    given = given_name(
        text_field(spans, "conversation")
        or object_field(spans, "conversation", "id")
        or text_field(spans, "prompt_cache_key")
    )
    return given or opening(spans, ("instructions",), "input")


def path(operation: Operation, upstream_model: str, target: str | None) -> str:
    """Where the upstream takes the call; ``target``: the id of what is stored, checked."""
    return operation.endpoint if target is None else operation.endpoint.replace("{id}", target)


def _check_input(spans: Spans) -> None:
    """FIELD_MISSING when there is nothing to answer, INVALID_FIELD when ``input`` is neither string
    nor array. Its items are not looked at."""
    if _is_given(spans, "input"):
        place = spans.places["input"]
        if not spans.body.startswith((b'"', b"["), place.start):
            raise wrong_type("input", "expected a string or an array")
    elif not any(_is_given(spans, name) for name in _INSTEAD_OF_INPUT):
        raise Fault(Condition.FIELD_MISSING, param="input")


def _is_given(spans: Spans, name: str) -> bool:
    place = spans.get(name)
    return place is not None and not spans.body.startswith(b"null", place.start)
