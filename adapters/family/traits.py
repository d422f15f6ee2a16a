"""Traits of an upstream's model that affect how a request is written.

The table is ``adapters/models.py``. Imported by the encoders of requests.
"""

from collections.abc import Collection
from typing import Literal

from adapters.ir.request import Effort, Thinking
from adapters.json.jsonio import Struct

ALL_EFFORTS: tuple[Effort, ...] = ("off", "minimal", "low", "medium", "high", "xhigh", "max")


# Features that a server may refuse separately, each a field of chat completions.
Refusable = Literal[
    "seed",
    "frequency_penalty",
    "presence_penalty",
    "logit_bias",
    "end_user",
    "parallel_tools",
    "verbosity",
]


class Traits(Struct, frozen=True):
    """A row of the table of models. A channel's ``options`` override its fields by these names.

    ``thinking``: how its depth is requested: by a level of ``efforts``, by a budget of tokens, or
    "adaptive" (messages: effort with adaptive thinking). "none": the model does not think.
    """

    images: bool = True
    documents: bool = True  # PDF
    audio: bool = False
    sampling: bool = True  # temperature, top_p and top_k; false: the model refuses them
    # chat completions: the field of the token bound
    token_bound: Literal["max_completion_tokens", "max_tokens"] = "max_completion_tokens"
    # the role of system turns in chat completions and responses
    system_role: Literal["system", "developer"] = "system"
    # how a JSON schema for the answer is sent: in a field, as the one forced tool, not at all
    structured: Literal["schema", "tool", "none"] = "schema"
    # generate_content: parametersJsonSchema and responseJsonSchema, or the subset dialect
    schemas: Literal["json_schema", "subset"] = "json_schema"
    strict_tools: bool = False  # messages: accepts ``strict`` on tools
    thinking: Literal["none", "effort", "budget", "adaptive"] = "effort"
    efforts: tuple[Effort, ...] = ALL_EFFORTS
    max_budget_tokens: int = 32768
    # wants the unsigned thoughts of the history back: chat completions as reasoning_content,
    # messages as thinking blocks
    reasoning_echo: bool = False
    # chat completions: accepts thoughts of the history as parts of the content
    thinking_parts: bool = False
    system_turns: bool = False  # messages: accepts system turns between others
    prefill: bool = True  # continues from a last turn of the assistant
    auto_cache: bool = True  # messages: cache marks are set if the client sets none
    # chat completions and responses: accepts the fields that OpenAI has and no other server of
    # the family: safety_identifier, prompt_cache_key, service_tier; in responses also encrypted
    # reasoning and web search
    openai_extras: bool = False
    # chat completions and responses: accepts free-text tools and a choice limited to some tools
    custom_tools: bool = False
    # chat completions: accepts an effort together with tools; false: refuses the combination
    effort_with_tools: bool = True
    # chat completions: thinks, and then calls no forced tool unless ``thinking`` turns it off
    thinking_switch: bool = False
    choices: bool = True  # gives several answers to one request (n)
    logprobs: bool = True  # log probabilities, and logit_bias
    verbosity: bool = False  # accepts a verbosity
    # messages: accepts a choice that forces a tool; false: refuses it, so a text asks for the tool
    forced_tools: bool = True
    # chat completions: the call ids that it accepts: "nine" letters and digits, or any
    call_ids: Literal["any", "nine"] = "any"
    # chat completions: features that it refuses although others of the family accept them
    refuses: tuple[Refusable, ...] = ()
    # searches the web itself: chat completions by web_search_options, messages by a tool
    search: bool = False
    # generate_content: searches the web beside functions; false: refuses the combination
    search_beside_functions: bool = False


# A budget of at most this many tokens maps to this level; a rule of the gateway.
_BUDGETS: tuple[tuple[int, Effort], ...] = (
    (0, "off"), (1024, "minimal"), (4096, "low"), (12_288, "medium"), (24_576, "high"),
)  # fmt: skip


def requested_effort(thinking: Thinking) -> Effort | None:
    """Return the requested effort, or the effort for the requested budget. None: the model
    decides."""
    budget = thinking.budget_tokens
    if thinking.effort is None and budget is not None:
        return next((level for most, level in _BUDGETS if budget <= most), "xhigh")
    return None if thinking.effort == "auto" else thinking.effort


def nearest_effort(effort: Effort, levels: Collection[Effort]) -> Effort | None:
    """Return the effort, the nearest lower one in ``levels``, or otherwise their lowest."""
    present = [level for level in ALL_EFFORTS if level in levels]
    order = ALL_EFFORTS.index(effort)
    lower = [level for level in present if ALL_EFFORTS.index(level) <= order]
    return lower[-1] if lower else next(iter(present), None)
