"""What the generate-content vendor refuses for some of its models, by the beginning of their names.

Source: the vendor's public documentation of its models. Any other name takes everything. Imported
by request.
"""

from __future__ import annotations

from typing import Any

from demo.script.family import Refusal

# Know neither thinking nor JSON schemas beside the vendor's own dialect.
OLD = ("gemini-1.5", "gemini-2.0")
BUDGETS = ("gemini-2.5",)  # ask for thinking by a budget, not by a level


def check_model(request: dict[str, Any], model: str) -> None:
    """Raises Refusal for what this model does not take."""
    config = request.get("generationConfig", {})
    thinking = config.get("thinkingConfig")
    if model.startswith(BUDGETS) and thinking and thinking.get("thinkingLevel") is not None:
        raise Refusal("Thinking level is not supported for this model.", kind="plain")
    if not model.startswith(OLD):
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
