"""Chat completions requests in the shape of responses, as Cursor sends them to a custom base URL:
``input`` in place of ``messages``, and tools described beside their type.

``client.peek`` of chat completions names the shape. Here the body is converted to the shape of its
family, for any channel. Imported by the relay.
"""

from typing import Any

from adapters.codecs import CODECS, TRANSLATORS
from adapters.family import Peek
from adapters.family.codec import Target
from adapters.family.traits import Traits
from adapters.json.jsonio import Span, Spans, dumps, loads, replace, top_level_steps
from adapters.json.structure import Steps
from adapters.translate import without_opaque

# Everything a vendor of chat completions may take: the channel is not known yet.
_TRAITS = Traits(custom_tools=True, verbosity=True, audio=True)
_KINDS = ("function", "custom")


def reshape(spans: Spans, peek: Peek) -> Steps[Spans]:
    """Return the fields of the body in this family's shape, in steps. Raises Fault INVALID_FIELD,
    FIELD_MISSING, and UNSUPPORTED if the family cannot express a field."""
    if peek.shape == "flat_tools":
        return (yield from top_level_steps(_with_nested_tools(spans)))
    decoded = yield from CODECS["responses"].client.decode_request(spans, peek.stream, None)
    refusal = TRANSLATORS["responses", "chat_completions"].refusal(decoded, _TRAITS)
    if refusal is not None:
        refusal.model = peek.model
        raise refusal
    target = Target("", peek.model, _TRAITS, stream_options=peek.include_usage)
    encode = CODECS["chat_completions"].upstream.encode_request
    encoded = yield from encode(without_opaque(decoded), target, False)
    return (yield from top_level_steps(encoded.body))


def _with_nested_tools(spans: Spans) -> bytes:
    edits: dict[Span, bytes] = {}
    for name in ("tools", "tool_choice"):
        place = spans.get(name)
        value = None if place is None else loads(spans.raw(name) or b"null")
        if place is not None and isinstance(value, list | dict):
            edits[place] = dumps(
                [_nested(tool) for tool in value] if isinstance(value, list) else _nested(value)
            )
    return replace(spans.body, edits)


def _nested(tool: dict[str, Any]) -> dict[str, Any]:
    """Return a tool, or a reference to one, with its description nested as this family does."""
    kind = tool.get("type")
    if kind not in _KINDS or kind in tool:
        return tool
    described = {name: value for name, value in tool.items() if name != "type"}
    form = described.get("format")
    if isinstance(form, dict) and form.get("type") == "grammar" and "grammar" not in form:
        rest = {name: value for name, value in form.items() if name != "type"}
        described["format"] = {"type": "grammar", "grammar": rest}
    return {"type": kind, kind: described}
