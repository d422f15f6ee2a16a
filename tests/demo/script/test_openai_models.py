"""What single models of the vendor of chat completions and responses refuse."""

import pytest

from demo.script.family import Refusal
from demo.script.fields import Fields
from demo.script.openai_models import check_model


def check(model, fields, *, schema=False):
    check_model(Fields(fields), model, "reasoning_effort", schema=schema)


@pytest.mark.parametrize(
    ("model", "fields"),
    [
        ("gpt-5.5", {"max_tokens": 5}),
        ("o3-mini", {"temperature": 0.5}),
        ("gpt-5", {"presence_penalty": 1}),
        ("gpt-4o", {"reasoning_effort": "low"}),
        ("gpt-5-chat-latest", {"reasoning_effort": "low"}),
    ],
)
def test_refused(model, fields):
    with pytest.raises(Refusal, match="Unsupported"):
        check(model, fields)
    check("another", fields)


def test_taken():
    check("gpt-5.5", {"max_completion_tokens": 5, "temperature": 1, "reasoning_effort": "low"})
    check("gpt-5-chat-latest", {"temperature": 0.5})
    check("gpt-4o", {"max_tokens": 5, "temperature": 0.5}, schema=True)


@pytest.mark.parametrize("model", ["gpt-4", "gpt-4-turbo", "gpt-3.5-turbo"])
def test_schemas_that_old_models_do_not_take(model):
    with pytest.raises(Refusal, match="json_schema"):
        check(model, {}, schema=True)
    check(model, {})
