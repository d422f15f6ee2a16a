"""Optional fields that tune an answer, and the errors of upstreams that do not know them.

Without such a field only the answer's cost, depth or delay changes; all other fields are the
client's to leave out. Source: the families' documentation, and errors of servers older than the
fields (docs/channels.md lists the table). Imported by ``read`` and the relay.
"""

import re
from collections.abc import Mapping

Path = tuple[str, ...]

# an unknown field, in the words of Anthropic and FastAPI, OpenAI, Google, and servers in Go,
# Python, Rust, TypeScript
_UNKNOWN = re.compile(
    r"extra inputs are not permitted|extra_forbidden|extra fields not permitted"
    r"|unrecognized (?:request argument|field|key|parameter)"
    r"|(?:unknown|unexpected|unsupported|unrecognised) "
    r"(?:parameter|field|name|argument|property|keyword argument)"
    r"|unknown_parameter|unsupported_parameter"
    r"|additional propert(?:y|ies)\b.{0,200}(?:not allowed|unexpected)|was unexpected"
    r"|(?:does not|doesn't) support the \W?\w+\W? parameter"
    r"|(?:parameter|field|property|argument) \W?[\w.]+\W? (?:is|are) (?:not supported|unsupported)",
    re.DOTALL,
)
# places of cache marks in the messages family
_MARKED = (
    *("", "system.*.", "tools.*.", "messages.*.content.*."),
    "messages.*.content.*.content.*.",
)


def _at(*paths: str) -> tuple[Path, ...]:
    return tuple(tuple(path.split(".")) for path in paths)


REFUSED_FIELDS: Mapping[str, tuple[Path, ...]] = {
    **{
        name: _at(name)
        for name in (
            *("context_management", "output_config.effort", "thinking.display"),
            *("tools.*.defer_loading", "tools.*.eager_input_streaming", "tools.*.input_examples"),
            *("prompt_cache_key", "prompt_cache_retention", "safety_identifier", "prediction"),
            *("verbosity", "text.verbosity", "reasoning_effort", "reasoning.effort"),
            *("reasoning.summary", "client_metadata"),
            *("generationConfig.thinkingConfig.thinkingLevel", "generationConfig.mediaResolution"),
        )
    },
    "cache_control.ttl": _at(*(f"{mark}cache_control.ttl" for mark in _MARKED)),
    "cache_control.scope": _at(*(f"{mark}cache_control.scope" for mark in _MARKED)),
    "cache_control": _at(*(f"{mark}cache_control" for mark in _MARKED)),
}
"""Name of a field in records -> its paths in requests."""

# parent fields that an error may name instead of the field
_OTHER_WORDS = {"output_config.effort": ("output_config",)}
_NAMED: Mapping[str, re.Pattern[str]] = {
    name: re.compile(
        rf"(?<![a-z0-9_])(?:{'|'.join((name.rpartition('.')[2], *_OTHER_WORDS.get(name, ())))})"
        r"(?![a-z0-9_])",
        re.IGNORECASE,
    )
    for name in REFUSED_FIELDS
}


def refused_fields(words: str) -> tuple[str, ...]:
    """Return the names of the fields that an error says are unknown; empty for any other error.
    ``words``: the error's text in lower case."""
    if _UNKNOWN.search(words) is None:
        return ()
    names = [name for name, pattern in _NAMED.items() if pattern.search(words)]
    parts = {name.partition(".")[0] for name in names if "." in name}
    return tuple(name for name in names if name not in parts)
