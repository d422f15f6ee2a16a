"""What single models of the generate-content vendor refuse."""

import pytest

from demo.generate_content.models import check_model
from demo.script.family import Refusal

LEVEL = {"generationConfig": {"thinkingConfig": {"thinkingLevel": "LOW"}}}
BUDGET = {"generationConfig": {"thinkingConfig": {"thinkingBudget": 0}}}
ANSWER = {"generationConfig": {"responseJsonSchema": {"type": "object"}}}
TOOL = {"tools": [{"functionDeclarations": [{"name": "f", "parametersJsonSchema": {}}]}]}


@pytest.mark.parametrize(
    ("model", "request_body"),
    [
        ("gemini-2.5-pro", LEVEL),
        ("gemini-2.0-flash", LEVEL),
        ("gemini-2.0-flash", BUDGET),
        ("gemini-2.0-flash", ANSWER),
        ("gemini-1.5-pro", TOOL),
    ],
)
def test_refused(model, request_body):
    with pytest.raises(Refusal, match="not supported for this model"):
        check_model(request_body, model)
    check_model(request_body, "another")


@pytest.mark.parametrize("request_body", [BUDGET, ANSWER, TOOL])
def test_taken(request_body):
    check_model(request_body, "gemini-2.5-pro")
