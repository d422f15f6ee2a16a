"""Errors in each family's form: the rows of the protocol, one for each condition."""

import json

import pytest

from adapters.faults import CODES, Condition, Fault
from adapters.registry import FAMILIES
from tests.support.dialects import ALL, GENERATE, MESSAGES, REFUSALS, SPECIAL_HEADERS


def test_each_condition_has_a_row_and_its_code():
    codes = {number: row.code for number, row in REFUSALS.items()}
    assert codes == {condition.value: code for condition, code in CODES.items()}


@pytest.mark.parametrize("number", REFUSALS)
@pytest.mark.parametrize("family", ALL)
def test_an_error_is_its_row(family, number):
    fault = Fault(Condition(number), model="m", param="p")
    envelope = FAMILIES[family].client.encode_fault(fault, "01ABC")
    body, row = json.loads(envelope.body), REFUSALS[number]
    error, (status, kind) = body["error"], row.of(family)
    assert envelope.status == status
    assert error["message"] and "None" not in error["message"]
    headers = dict(envelope.headers)
    assert headers.pop("content-type") == "application/json"
    assert headers == row.headers and headers.keys() <= set(SPECIAL_HEADERS)
    if family == GENERATE:
        assert (error["code"], error["status"]) == (status, kind)
    elif family == MESSAGES:
        assert (error["type"], body["type"], body["request_id"]) == (kind, "error", "01ABC")
    else:
        assert (error["type"], error["code"]) == (kind, row.code_of(family))
        assert list(error) == ["message", "type", "param", "code"]
