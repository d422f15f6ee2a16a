"""How much a model shall think, for upstreams. Imported by ``encode_request``.

Newer models think by effort and refuse budgets, older ones the reverse: the table of models says
which. Source: the vendor's documentation of extended and adaptive thinking.
"""

from typing import Any

from adapters.family.codec import Target
from adapters.ir.request import Effort, Request, Thinking

MIN_BUDGET_TOKENS = 1024
ANSWER_TOKENS = 1024  # are left for the answer where the bound allows
_BUDGETS: dict[Effort, int] = {  # of max, all that the bound leaves
    "minimal": 1024,
    "low": 2048,
    "medium": 8192,
    "high": 16384,
    "xhigh": 32768,
}
_LEVELS: tuple[tuple[int, Effort], ...] = (
    (1024, "minimal"),
    (4096, "low"),
    (12288, "medium"),
    (24576, "high"),
)
_EFFORTS: tuple[Effort, ...] = ("low", "medium", "high", "xhigh", "max")  # of the family


def encode_thinking(
    request: Request,
    target: Target,
    messages: list[dict[str, Any]],
    bound: int,
    *,
    bare: bool,
) -> tuple[dict[str, Any], int]:
    """The fields ``thinking`` and ``effort`` as far as there are any, and the bound of the answer
    to ``messages``.

    ``bound``: what the client or the model's row allows. ``bare``: the answer must begin at once,
    with a tool or in the middle of a text, which excludes thinking by a budget.
    """
    wanted = request.thinking
    traits = target.traits
    if wanted is None or traits.thinking == "none":
        return {}, bound
    if is_off(wanted):  # what most models do when they are not asked
        off = traits.thinking == "adaptive" and "off" in traits.efforts
        return ({"thinking": {"type": "disabled"}} if off else {}), bound
    if traits.thinking == "budget":
        if bare or _has_lost_thoughts(messages):
            return {}, bound
        return _by_budget(request, target, bound)
    fields: dict[str, Any] = {}
    level = wanted.effort if wanted.budget_tokens is None else _level(wanted.budget_tokens)
    if level not in (None, "auto"):
        fields["effort"] = _nearest(level, traits.efforts)
    if traits.thinking == "adaptive" and level is not None:
        thinking = {"type": "adaptive"}
        if wanted.show is not None:
            thinking["display"] = "omitted" if wanted.show == "none" else "summarized"
        fields["thinking"] = thinking
    return fields, bound


def is_off(wanted: Thinking) -> bool:
    """Whether the client wants no thinking."""
    return wanted.effort == "off" or wanted.budget_tokens == 0


def _has_lost_thoughts(messages: list[dict[str, Any]]) -> bool:
    """Whether the calls that are now answered have come back without what was thought before them:
    the vendor would refuse to think by a budget. Models that think when they like do without."""
    if len(messages) < 2 or messages[-1]["content"][0]["type"] != "tool_result":
        return False
    return messages[-2]["content"][0]["type"] not in ("thinking", "redacted_thinking")


def _by_budget(request: Request, target: Target, bound: int) -> tuple[dict[str, Any], int]:
    """A budget must be less than the bound: that is raised as far as the model is known to allow,
    then the budget gives way, and where nothing is left of it there is no thinking."""
    wanted, limit = request.thinking, target.max_output_tokens
    assert wanted is not None
    budget = wanted.budget_tokens
    if budget is None:
        if wanted.effort is None or wanted.effort == "auto":
            return {}, bound
        budget = _BUDGETS.get(wanted.effort, bound - ANSWER_TOKENS)
    budget = max(min(budget, target.traits.max_budget_tokens), MIN_BUDGET_TOKENS)
    if bound <= budget:
        if limit is None:  # what the client has said is not raised by a guess
            limit = bound if request.max_output_tokens is not None else budget + bound
        bound = max(bound, min(budget + bound, limit))
        budget = min(budget, max(bound - ANSWER_TOKENS, MIN_BUDGET_TOKENS))
    if bound <= budget:
        return {}, bound
    return {"thinking": {"type": "enabled", "budget_tokens": budget}}, bound


def _level(budget_tokens: int) -> Effort:
    return next((level for most, level in _LEVELS if budget_tokens <= most), "xhigh")


def _nearest(level: Effort, known: tuple[Effort, ...]) -> str:
    """The level, or the next lower one that the model has, or else its lowest."""
    fit = [each for each in _EFFORTS if each in known] or ["low"]
    order = ("minimal", *_EFFORTS)
    lower = [each for each in fit if order.index(each) <= order.index(level)]
    return lower[-1] if lower else fit[0]
