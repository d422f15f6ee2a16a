"""What the messages vendor refuses for some of its models, by the beginning of their names.

Source: the vendor's public documentation of its models. Any other name takes everything. Imported
by request.
"""

from __future__ import annotations

from demo.script.family import Refusal
from demo.script.fields import Fields

NO_THINKING = ("claude-3-5", "claude-3-opus", "claude-3-haiku")
# Neither effort nor a schema for the answer.
NO_OUTPUT_CONFIG = (
    *("claude-3", "claude-opus-4-0", "claude-opus-4-1", "claude-opus-4-2025"),
    *("claude-sonnet-4-0", "claude-sonnet-4-2025"),
)
BUDGETS_ONLY = (
    *NO_OUTPUT_CONFIG,
    *("claude-opus-4-5", "claude-sonnet-4-5", "claude-haiku-4-5"),
)
BUDGETS_TOO = ("claude-opus-4-6", "claude-sonnet-4-6")
OURS = "claude-"
SAMPLING = ("temperature", "top_p", "top_k")


def check_model(request: Fields, model: str, last_role: str) -> None:
    """Raises Refusal for what this model does not take."""
    if not model.startswith(OURS):
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
    for name in SAMPLING:
        if request.value.get(name) not in (None, 1):
            raise Refusal(f"`{name}` is deprecated for this model.", kind="plain")
