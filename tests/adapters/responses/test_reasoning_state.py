"""Encrypted reasoning as one text."""

from adapters.responses.reasoning_state import seal, unseal


def test_round_trip():
    item = {"type": "reasoning", "id": "rs_1", "encrypted_content": "é/+="}
    assert unseal(seal(item), "") == {**item, "summary": []}
    assert seal(item).isascii()
    del item["id"]
    summary = [{"type": "summary_text", "text": "Hm."}]
    assert unseal(seal(item), "Hm.") == {**item, "summary": summary}


def test_nothing_encrypted():
    assert seal({}) == seal({"encrypted_content": 1}) == seal({"encrypted_content": ""}) == ""
    assert unseal("", "x") is None
