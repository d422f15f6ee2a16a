"""The list of models that Codex reads: `GET /v1/models?client_version=…`.

Source: the requests and the built-in catalog of Codex 0.169. Codex uses the list in place of that
catalog for models of any name, and rejects a list that lacks a field or has an unknown effort.
"""

from collections.abc import Sequence

from adapters.family import ModelEntry
from adapters.json.jsonio import dumps

QUERY_FIELD = "client_version"

_FIRST_WITH_MAX = (0, 144)  # version of Codex; older ones do not know the effort "max"
_LEVELS = {
    "minimal": "Almost no reasoning, for simple and fast answers",
    "low": "Little reasoning, fast answers",
    "medium": "Some reasoning, for everyday work",
    "high": "Much reasoning, for hard problems",
    "xhigh": "Very much reasoning, for the hardest problems",
    "max": "As much reasoning as the model can",
}
# The agent's instructions: Codex has none of its own for models from a list.
_INSTRUCTIONS = """\
You are a coding agent in Codex, a program in the user's terminal that gives you tools. You and the
user share one working folder.

# Work

- Go on until the task is solved. Stop to ask only for a decision that is the user's.
- Do what the user asks and no more: repair causes rather than symptoms, and leave alone code, tests
  and files that have nothing to do with it.
- Read before you change. Search with `rg` and `rg --files` where they are installed. Write as the
  code around you is written.
- A file named AGENTS.md has instructions for its folder and all below it; the deeper one goes
  first, and what the user says goes before both.
- Change files with `apply_patch` where it is offered. Start commands that do not depend on each
  other in one turn.
- Keep a plan of work with several steps in the tool for plans, where there is one, and keep it up
  to date.
- Never undo changes that are not yours. No commit, no branch and no `git reset --hard` unless the
  user wants it.
- Check your work: run the tests and linters of what you changed, the narrowest first. Never report
  a success that you did not see.

# Words

- Say in one sentence what you are about to do before you start a group of commands.
- At the end say briefly what you changed and where (`path:line`), how you checked it, and what is
  left. Do not print files that you wrote: the user has them.
"""


def codex_model_list(models: Sequence[ModelEntry], version: str) -> bytes:
    """Encode the list for a version of Codex ("0.169.0")."""
    numbers = tuple(int(part) for part in version.split(".")[:2] if part.isdecimal())
    levels = dict(_LEVELS)
    if numbers < _FIRST_WITH_MAX:
        del levels["max"]
    return dumps({"models": [_fields(model, levels) for model in models]})


def _fields(model: ModelEntry, levels: dict[str, str]) -> dict[str, object]:
    efforts = [effort for effort in model.efforts if effort in levels]
    return {
        "slug": model.name,
        "display_name": model.name,
        "description": None,
        "context_window": model.context_tokens,
        "supported_reasoning_levels": [
            {"effort": effort, "description": levels[effort]} for effort in efforts
        ],
        "supports_reasoning_summaries": bool(efforts),
        "supports_reasoning_summary_parameter": bool(efforts),
        "input_modalities": ["text", "image"] if model.images else ["text"],
        "base_instructions": _INSTRUCTIONS,
        "apply_patch_tool_type": "freeform",
        "shell_type": "shell_command",
        "supports_parallel_tool_calls": True,
        "support_verbosity": False,
        "default_verbosity": None,
        "truncation_policy": {"mode": "tokens", "limit": 10_000},
        "experimental_supported_tools": [],
        "visibility": "list",
        "supported_in_api": True,
        "priority": 0,
        "upgrade": None,
    }
