"""Findings about a base URL that a user has typed, and about a requested path."""

import pytest

from operations.base_url_check import check, diagnose

BASE, HUB = "https://gate.example.com", "https://hub.example.com"
OPENAI, MESSAGES, GENERATE, FULL = "openai", "messages", "generate_content", "full_messages"


def right_for(pasted, base=BASE):
    return [one.kind for one in check(pasted, base, HUB).verdicts if one.right]


@pytest.mark.parametrize(
    ("pasted", "kinds"),
    [
        (BASE, [MESSAGES, GENERATE]),
        (BASE + "/", [MESSAGES, GENERATE]),
        ("  gate.example.com ", [MESSAGES, GENERATE]),
        ("GATE.example.com:443", [MESSAGES, GENERATE]),
        (BASE + "/v1", [OPENAI]),
        (BASE + "/v1/", [OPENAI]),
        (BASE + "/v1/messages", [FULL]),
        (BASE + "/v1/chat/completions", []),
        (BASE + "/v1beta", []),
        (BASE + "/v1?key=x", []),
        ("http://gate.example.com/v1", []),
        ("https://api.openai.com/v1", []),
    ],
)
def test_which_clients_it_is_right_for(pasted, kinds):
    assert right_for(pasted) == kinds


def test_a_gateway_below_a_path():
    base = "http://10.0.0.1:8000/llm"
    assert right_for(base + "/v1", base) == [OPENAI]
    assert right_for("http://10.0.0.1:8000/v1", base) == []


@pytest.mark.parametrize(
    ("pasted", "problem"),
    [
        (BASE + "/v1", None),
        (HUB + "/v1", "hub_host"),
        ("https://api.openai.com/v1", "other_host"),
        ("http://gate.example.com", "other_scheme"),
        ("http://gate.example.com:8080", "other_host"),
        ("", "no_url"),
        ("x y", "no_url"),
        ("ftp://gate.example.com", "no_url"),
        ("https://[", "no_url"),
        ("https://gate.example.com:99999", "no_url"),
    ],
)
def test_what_is_wrong_for_every_client(pasted, problem):
    found = check(pasted, BASE, HUB)
    assert found.problem == problem and bool(found.verdicts) == (problem != "no_url")


def test_what_each_kind_would_ask_for():
    found = {one.kind: one for one in check(BASE + "/v1/messages", BASE).verdicts}
    asked = {kind: (one.path + one.appended, one.use) for kind, one in found.items()}
    assert asked == {
        OPENAI: ("/v1/messages/chat/completions", BASE + "/v1"),
        MESSAGES: ("/v1/messages/v1/messages", BASE),
        GENERATE: ("/v1/messages/v1beta/models/…", BASE),
        FULL: ("/v1/messages", BASE + "/v1/messages"),
    }
    assert [one.rule for one in found.values()] == [1, 2, 2, 3]


@pytest.mark.parametrize(
    ("path", "base_path", "use"),
    [
        ("/v1/messages/v1/messages", "/v1/messages", BASE),
        ("/chat/completions", "", BASE + "/v1"),
        ("/v1/v1/responses", "/v1/v1", BASE + "/v1"),
        ("/v1/v1beta/models/m:generateContent", "/v1", BASE),
        ("/v1/files", "", None),
        ("/v1beta/models/m:embedContent", "", None),
        ("/v1/responses/", "/v1", None),
    ],
)
def test_what_a_wrong_path_was_made_from(path, base_path, use):
    found = diagnose(path, BASE)
    assert (found.base_path, found.use) == (base_path, use)
    assert found.base_path + found.appended == path
