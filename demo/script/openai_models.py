"""What the vendor of chat completions and responses refuses for some of its models, by the
beginning of their names.

Source: the vendor's public documentation of its models. Any other name takes everything. Imported
by these two families.
"""

from __future__ import annotations

from demo.script.family import Refusal
from demo.script.fields import Fields

REASONING = ("o1", "o3", "o4", "gpt-5")
NO_REASONING = ("gpt-3.5", "gpt-4", "chatgpt-4o", "gpt-5-chat")
NO_SCHEMAS = ("gpt-3.5", "gpt-4-", "gpt-4")
SCHEMAS_TOO = ("gpt-4o", "gpt-4.1", "gpt-4.5")
# What a model that reasons takes at its usual value alone.
SAMPLING = {"temperature": 1, "top_p": 1, "frequency_penalty": 0, "presence_penalty": 0}


def check_model(request: Fields, model: str, depth: str, *, schema: bool) -> None:
    """Raises Refusal for what this model does not take. `depth`: the field of the effort, of which
    the first part is looked for; `schema`: a JSON schema for the answer is asked for."""
    reasons = model.startswith(REASONING) and not model.startswith(NO_REASONING)
    if model.startswith(NO_REASONING) and request.has(depth.partition(".")[0]):
        raise _unsupported(request, depth, "parameter")
    if schema and model.startswith(NO_SCHEMAS) and not model.startswith(SCHEMAS_TOO):
        problem = "'json_schema' as the form of the answer is not supported with this model."
        raise Refusal(f"Invalid parameter: {problem}", kind="plain")
    if not reasons:
        return
    if request.has("max_tokens"):
        raise _unsupported(request, "max_tokens", "parameter")
    for name, usual in SAMPLING.items():
        if request.value.get(name) not in (None, usual):
            raise _unsupported(request, name, "value")


def _unsupported(request: Fields, name: str, what: str) -> Refusal:
    problem = f"Unsupported {what}: '{name}' is not supported with this model."
    return Refusal(problem, request.at(name), "plain", code=f"unsupported_{what}")
