"""A request, and the features that requests may ask for.

``Feature`` is the vocabulary of losses. A client's decoder lists the features that a request asks
for and where; an upstream's table of verdicts decides what happens to each
(``adapters.family.verdicts``).
"""

from collections.abc import Mapping
from typing import Any, Literal

from adapters.ir.parts import CacheMark, Part, Turn
from adapters.json.jsonio import Struct

# Features of requests that some upstream does not support. Not listed are those that all families
# have (texts, function tools, their calls and results, a token bound).
Feature = Literal[
    # sampling and output
    "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty",
    "logit_bias", "stop", "n", "logprobs", "json_output", "schema_output", "verbosity",
    "reasoning", "parallel_tools", "output_modalities", "prediction",
    # media in turns
    "image_data", "image_url", "image_detail", "audio", "document_data", "document_url",
    "text_document", "file_ref", "video",
    # tools
    "custom_tool", "tool_namespace", "allowed_tools", "hosted_search", "hosted_tool",
    "forced_search", "forced_hosted_tool", "hosted_history", "strict_tool",
    # around the call
    "end_user", "metadata", "tier", "speed", "cache_mark", "cache_key", "cached_content",
    "safety_settings", "moderation", "truncation", "context_management", "include", "citations",
    "system_turn", "prefill", "stored_state", "background", "container",
    "vendor_terms",
    # a field unknown to the gateway
    "other",
]  # fmt: skip


class Ask(Struct, frozen=True, gc=False):
    """A feature that a request asks for, and its path in the client's body, such as "metadata" or
    "tools[2]". Only values that change the answer or the call are listed: not n = 1, not null."""

    feature: Feature
    path: str


class Tool(Struct, frozen=True):
    """A tool that the model may call.

    ``schema``: JSON Schema of the arguments (types in lower case), None if the client sent none.
    The vendor runs a ``hosted`` tool; the ``kind`` in its ``raw`` is the type in the client's
    family, and ``search`` is true if it searches the web. ``grammar``: the syntax that the text for
    a ``custom`` tool must follow, in the language ``grammar_syntax`` (empty: free text). ``path``:
    the tool's place in the client's body.
    """

    kind: Literal["function", "custom", "hosted"]
    name: str
    description: str = ""
    schema: dict[str, Any] | None = None
    strict: bool | None = None
    namespace: str = ""
    search: bool = False
    grammar: str = ""
    grammar_syntax: Literal["", "lark", "regex"] = ""
    cache: CacheMark | None = None
    raw: dict[str, Any] | None = None
    path: str = ""


class ToolChoice(Struct, frozen=True, gc=False):
    """The tools that must be called: ``any`` one, or ``one`` by name. ``names`` is that name; for
    auto and any, the allowed subset, or empty for all."""

    mode: Literal["auto", "none", "any", "one"]
    names: tuple[str, ...] = ()


class Output(Struct, frozen=True):
    """The form of the text: free, one JSON object, or JSON by a schema (types in lower case)."""

    kind: Literal["text", "json", "schema"] = "text"
    schema: dict[str, Any] | None = None
    name: str = ""
    description: str = ""
    strict: bool | None = None


TOOL_SEARCH = "tool_search"  # the function that stands for a client-side search for tools

Effort = Literal["off", "minimal", "low", "medium", "high", "xhigh", "max", "auto"]


class Thinking(Struct, frozen=True, gc=False):
    """The depth of thinking, by effort or by token budget (the other is None), and the part that
    the client sees. ``show`` None: the client did not say."""

    effort: Effort | None = None
    budget_tokens: int | None = None
    show: Literal["none", "summary", "full"] | None = None


class Request(Struct, frozen=True):
    """A request for an answer, or for the count of its tokens.

    ``system``: texts before the first turn; system turns may also follow in ``turns``. ``turns``:
    neighbours differ in role, except system turns; every ToolResult is in a user turn, before its
    other parts. ``logprobs``: the number of alternatives for each token, None for no log
    probabilities. ``max_output_tokens``: None for no bound. ``asks``: see ``Ask``.
    """

    family: str
    stream: bool
    turns: tuple[Turn, ...]
    system: tuple[Part, ...] = ()
    tools: tuple[Tool, ...] = ()
    choice: ToolChoice | None = None
    parallel_tools: bool | None = None
    output: Output = Output()
    verbosity: str = ""
    thinking: Thinking | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: Mapping[str, float] | None = None
    max_output_tokens: int | None = None
    stop: tuple[str, ...] = ()
    n: int = 1
    logprobs: int | None = None
    end_user: str = ""
    metadata: Mapping[str, Any] | None = None
    tier: Literal["", "auto", "default", "flex", "priority"] = ""
    cache_key: str = ""
    include_usage: bool = True  # whether the stream shows usage
    # chat completions: expects its one call in the old form, from before tools
    function_call: bool = False
    # responses: the client itself searches for tools; other families see this as a function
    tool_search: bool = False
    compacts: bool = False  # responses: wants a summary in place of the conversation
    asks: tuple[Ask, ...] = ()
