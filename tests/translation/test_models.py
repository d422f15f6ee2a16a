"""Restricted models, requested by clients of other families: what they refuse is not sent to
them."""

import pytest

from tests.translation import cases
from tests.translation.world import FAMILIES, OTHER_MODELS, Cell

CONTEXT = (
    cases.tool_error,
    cases.structured_output,
    cases.thinking_asked,
    cases.temperature,
    cases.length,
)


@pytest.mark.parametrize("case", CONTEXT, ids=lambda case: case.__name__)
@pytest.mark.parametrize(
    ("client", "model"),
    [
        (client, model)
        for client in FAMILIES
        for model, (family, _) in OTHER_MODELS.items()
        if family != client
    ],
)
def test_a_model_that_takes_less(matrix_world, client, model, case):
    upstream = OTHER_MODELS[model][0]
    case(Cell(matrix_world, client, upstream, stream=True, other_model=model))
