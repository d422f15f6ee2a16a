"""Restrictions of some of the vendors' models, by prefixes of their names.

Source: the vendors' public documentation of their models. Any other name accepts everything.
"""

from __future__ import annotations

from typing import Any

from tests.vendor.family import Refusal
from tests.vendor.fields import Fields

# Chat completions and responses.

OPENAI_REASONING = ("o1", "o3", "o4", "gpt-5")
NO_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat")
NO_SCHEMAS = ("gpt-3.5", "gpt-4-", "gpt-4")
SCHEMAS_TOO = ("gpt-4o", "gpt-4.1", "gpt-4.5")
# Fields that a reasoning model accepts only with their default values.
OPENAI_SAMPLING = {"temperature": 1, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0}


def check_openai_model(request: Fields, model: str, depth: str, *, schema: bool) -> None:
    """Raise Refusal for what this model does not accept. `depth`: the path of the effort field, of
    which the first part is looked up; `schema`: the request has a JSON schema for the answer."""
    reasons = model.startswith(OPENAI_REASONING) and not model.startswith(NO_REASONING)
    if model.startswith(NO_REASONING) and request.has(depth.partition(".")[0]):
        raise _unsupported(request, depth, "parameter")
    if schema and model.startswith(NO_SCHEMAS) and not model.startswith(SCHEMAS_TOO):
        problem = "'json_schema' as the form of the answer is not supported with this model."
        raise Refusal(f"Invalid parameter: {problem}", kind="plain")
    if not reasons:
        return
    if request.has("max_tokens"):
        raise _unsupported(request, "max_tokens", "parameter")
    for name, usual in OPENAI_SAMPLING.items():
        if request.value.get(name) not in (None, usual):
            raise _unsupported(request, name, "value")


def _unsupported(request: Fields, name: str, what: str) -> Refusal:
    problem = f"Unsupported {what}: '{name}' is not supported with this model."
    return Refusal(problem, request.at(name), "plain", code=f"unsupported_{what}")


# Messages.

NO_THINKING = ("claude-3-5", "claude-3-opus", "claude-3-haiku")
# Models with neither effort nor a schema for the answer.
NO_OUTPUT_CONFIG = (
    *("claude-3", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2025"),
    *("claude-sonnet-4-0", "claude-sonnet-4-2025"),
)
BUDGETS_ONLY = (
    *NO_OUTPUT_CONFIG,
    *("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"),
)
BUDGETS_TOO = ("claude-opus-4-6", "claude-sonnet-4-6")
MESSAGES_MODELS = "claude-"
MESSAGES_SAMPLING = ("temperature", "top_p", "top_k")


def check_messages_model(request: Fields, model: str, last_role: str) -> None:
    """Raise Refusal for what this model does not accept."""
    if not model.startswith(MESSAGES_MODELS):
        return
    thinking = request.object("thinking")
    kind = thinking.string("type") if thinking is not None else None
    if kind not in (None, "disabled") and model.startswith(NO_THINKING):
        raise Refusal("thinking is not supported by this model", kind="plain")
    if model.startswith(NO_OUTPUT_CONFIG) and request.has("output_config"):
        raise Refusal("output_config is not supported by this model", kind="plain")
    if model.startswith(BUDGETS_ONLY):
        if kind == "adaptive":
            raise Refusal("adaptive thinking is not supported on this model", kind="plain")
        return
    if last_role == "assistant":
        problem = "This model does not support assistant message prefill. The conversation must "
        raise Refusal(problem + "end with a user message.", kind="plain")
    if model.startswith(BUDGETS_TOO):
        return
    if kind == "enabled":
        problem = '"thinking.type.enabled" is not supported for this model'
        raise Refusal(problem, kind="plain")
    for name in MESSAGES_SAMPLING:
        if request.value.get(name) not in (None, 1):
            raise Refusal(f"`{name}` is deprecated for this model.", kind="plain")


# Generate-content.

# Models without thinking, and without JSON schemas other than the vendor's own dialect.
GENERATE_OLD = ("gemini-1.5", "gemini-2.0")
GENERATE_BUDGETS = ("gemini-2.5",)  # thinking is set by a budget, not by a level


def check_generate_model(request: dict[str, Any], model: str) -> None:
    """Raise Refusal for what this model does not accept."""
    config = request.get("generationConfig", {})
    thinking = config.get("thinkingConfig")
    if (
        model.startswith(GENERATE_BUDGETS)
        and thinking
        and thinking.get("thinkingLevel") is not None
    ):
        raise Refusal("Thinking level is not supported for this model.", kind="plain")
    if not model.startswith(GENERATE_OLD):
        return
    if thinking:
        raise Refusal("Thinking is not supported for this model.", kind="plain")
    if config.get("responseJsonSchema") is not None:
        raise Refusal("response_json_schema is not supported for this model.", kind="plain")
    for tool in request.get("tools", ()):
        for declared in tool.get("functionDeclarations", ()):
            if declared.get("parametersJsonSchema") is not None:
                problem = "parameters_json_schema is not supported for this model."
                raise Refusal(problem, kind="plain")
