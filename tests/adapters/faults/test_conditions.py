"""Conditions, the Fault that carries them, and its default wording."""

import pytest

from adapters.faults import CODES, Condition, Fault, wrong_type, wrong_value


def test_every_condition_has_a_code_and_a_message():
    assert set(CODES) == set(Condition)
    for condition in Condition:
        message = Fault(condition, param="n", model="m").message
        assert message.endswith(".") and "{" not in message and "None" not in message


def test_the_default_message_follows_what_is_filled_in_later():
    fault = Fault(Condition.UPSTREAM_RATE_LIMITED)
    assert fault.message == "All channels for this model are rate limited. Try again in 5s."
    fault.model, fault.retry_after_s = "demo-large", 900
    assert (
        fault.message == "All channels for model 'demo-large' are rate limited. Try again in 60s."
    )
    fault.message = "Other words."
    assert fault.message == "Other words."
    assert str(fault) == "E25 Other words."


def test_wording_of_the_table():
    assert Fault(Condition.MODEL_NOT_FOUND, model="demo-huge").message == (
        "Model 'demo-huge' is not available to this API key. Check the name and the channel status."
    )
    assert Fault(Condition.MODEL_NOT_FOUND).message.startswith("This model is not available")
    assert Fault(Condition.METHOD_NOT_ALLOWED).message == "Use POST for this endpoint."
    assert Fault(Condition.METHOD_NOT_ALLOWED, allow="GET").message == "Use GET for this endpoint."
    assert Fault(Condition.RATE_LIMITED).message == "Rate limit reached. Try again in 3s."


@pytest.mark.parametrize(
    ("given", "wait"), [(None, 2), (0, 2), (1, 1), (17, 17), (60, 60), (61, 60), (-4, 1)]
)
def test_the_wait_is_between_one_second_and_a_minute(given, wait):
    assert Fault(Condition.UPSTREAM_OVERLOADED, retry_after_s=given).wait_s == wait
    assert Fault(Condition.WALLET_EMPTY, retry_after_s=given).wait_s is None


def test_blame_and_retry():
    assert Fault(Condition.INVALID_KEY).blame == "client"
    assert Fault(Condition.UPSTREAM_REFUSED).blame == "client"
    assert Fault(Condition.NO_CHANNEL).blame == "gateway"
    assert Fault(Condition.UPSTREAM_TIMEOUT).blame == "upstream"
    no_retry = {c.value for c in Condition if Fault(c).should_retry_header == "false"}
    assert no_retry == {
        *("E01", "E02", "E03", "E04", "E05", "E06", "E07", "E08"),
        *("E18", "E19", "E24", "E28", "E40", "E41"),
    }
    assert Fault(Condition.RATE_LIMITED).should_retry_header is None


def test_param_is_model_where_only_the_model_can_be_meant():
    assert Fault(Condition.MODEL_NOT_FOUND).param == "model"
    assert Fault(Condition.CONTEXT_LENGTH).param == "messages"
    assert Fault(Condition.CONTEXT_LENGTH, param="input").param == "input"
    assert Fault(Condition.INVALID_KEY).param is None


def test_type_and_value_faults():
    fault = wrong_type("messages[0].content", "expected a string or an array")
    assert fault.message == ("Wrong type for 'messages[0].content': expected a string or an array.")
    fault = wrong_value("n", "expected an integer from 0 to 9")
    assert (fault.param, fault.code) == ("n", "invalid_type")
    assert fault.message == "Wrong value for 'n': expected an integer from 0 to 9."


def test_secrets_are_masked_in_what_was_given_only():
    fault = Fault(Condition.UPSTREAM_REFUSED, "no hush-hush here", detail="hush-hush")
    fault.mask(["hush-hush"])
    assert fault.message == "no *** here" and fault.detail == "***"
    fault = Fault(Condition.UPSTREAM_REFUSED)
    fault.mask(["upstream"])
    assert fault.message == "The upstream refused the request."


def test_a_fault_that_stays_is_not_to_be_repeated():
    fault = Fault(Condition.RATE_LIMITED)
    fault.permanent = True
    assert (fault.wait_s, fault.should_retry_header) == (None, "false")
