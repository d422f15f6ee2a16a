"""Restrictions of single models of the vendors; any other name accepts everything."""

import pytest

from tests.vendor.family import Refusal
from tests.vendor.fields import Fields
from tests.vendor.messages_request import check_request
from tests.vendor.models import check_generate_model, check_openai_model

ENABLED = {"thinking": {"type": "enabled", "budget_tokens": 1024}}
ADAPTIVE = {"thinking": {"type": "adaptive"}}
EFFORT = {"output_config": {"effort": "low"}}
PREFILL = {"messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "I"}]}
LEVEL = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}
BUDGET = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
ANSWER = {"generationConfig": {"responseJsonSchema": {"type": "object"}}}
TOOL = {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {}}]}]}
SCHEMA = {"response_format": {"type": "json_schema"}}


def check(model, fields):
    """Check a request with these fields in the family that has them."""
    if any(name in fields for name in ("generationConfig", "tools")):
        check_generate_model(fields, model)
    elif model.startswith(("claude", "another claude")):
        body = {"model": model, "max_tokens": 4096, "messages": [{"role": "user", "content": "hi"}]}
        check_request({**body, **fields}, "2023-06-01", counting=False)
    else:
        schema = fields is SCHEMA
        check_openai_model(Fields(fields), model, "reasoning_effort", schema=schema)


@pytest.mark.parametrize(
    ("model", "fields", "words"),
    [
        ("gpt-5.5", {"max_tokens": 5}, "Unsupported"),
        ("o3-mini", {"temperature": 0.5}, "Unsupported"),
        ("gpt-5", {"presence_penalty": 1}, "Unsupported"),
        ("gpt-4o", {"reasoning_effort": "low"}, "Unsupported"),
        ("gpt-5-chat-latest", {"reasoning_effort": "low"}, "Unsupported"),
        *((name, SCHEMA, "json_schema") for name in ("gpt-4", "gpt-4-turbo", "gpt-3.5-turbo")),
        ("claude-3-5-haiku", ENABLED, "thinking is not supported"),
        ("claude-3-7-sonnet", ADAPTIVE, "adaptive thinking"),
        ("claude-opus-4-1", EFFORT, "output_config"),
        ("claude-sonnet-4-5", ADAPTIVE, "adaptive thinking"),
        ("claude-opus-4-6", PREFILL, "prefill"),
        ("claude-opus-5", PREFILL, "prefill"),
        ("claude-opus-5", ENABLED, "thinking.type.enabled"),
        ("claude-opus-5", {"temperature": 0.5}, "temperature"),
        ("gemini-2.5-pro", LEVEL, "not supported for this model"),
        ("gemini-2.0-flash", LEVEL, "not supported for this model"),
        ("gemini-2.0-flash", BUDGET, "not supported for this model"),
        ("gemini-2.0-flash", ANSWER, "not supported for this model"),
        ("gemini-1.5-pro", TOOL, "not supported for this model"),
    ],
)
def test_refused(model, fields, words):
    with pytest.raises(Refusal, match=words):
        check(model, fields)
    check(f"another {model}", fields)
