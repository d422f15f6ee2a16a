"""The exact request that each vendor is sent: URL, headers and body, as the relay makes them.

The URLs are those of the vendors' own documentation, with the base URL that docs/vendors.md names.
"""

import json
from pathlib import Path
from typing import NamedTuple

import pytest

from adapters.json.jsonio import top_level
from adapters.registry import FAMILIES, FAMILY_NAMES, VENDORS

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILY_NAMES
KEY = "sk-of-the-channel"
PUBLIC, UPSTREAM = "small", "maker/model-1"
JSON = ["content-type: application/json", "accept: application/json, text/event-stream"]
# What a client sends along; of these only a family's or vendor's own go on.
CLIENT = {
    "authorization": "Bearer sk-of-the-client",
    "user-agent": "client/1",
    "anthropic-version": "2026-10-21",
    "anthropic-beta": "one,two",
    "openai-organization": "org",
    "openai-project": "project",
    "openai-beta": "beta",
    "x-goog-api-client": "client/1",
}
VERSION = ["anthropic-version: 2026-10-21", "anthropic-beta: one,two"]
OPENAI = ["openai-organization: org", "openai-project: project", "openai-beta: beta"]

MESSAGE = {"role": "user", "content": "Hi"}
CONTENTS = [{"role": "user", "parts": [{"text": "Hi"}]}]
# Streams, as clients write them, and as the vendor gets them.
BODIES = {
    CHAT: (
        {"model": PUBLIC, "stream": True, "messages": [MESSAGE], "odd": 1},
        {"stream_options": {"include_usage": True}, "model": UPSTREAM, "stream": True,
         "messages": [MESSAGE], "odd": 1},
    ),
    RESPONSES: (
        {"model": PUBLIC, "stream": True, "input": "Hi", "odd": 1},
        {"model": UPSTREAM, "stream": True, "input": "Hi", "odd": 1},
    ),
    MESSAGES: (
        {"model": PUBLIC, "stream": True, "max_tokens": 5, "messages": [MESSAGE], "odd": 1},
        {"model": UPSTREAM, "stream": True, "max_tokens": 5, "messages": [MESSAGE], "odd": 1},
    ),
    GENERATE: ({"contents": CONTENTS, "odd": 1}, {"contents": CONTENTS, "odd": 1}),
}  # fmt: skip
CREATE = dict.fromkeys((CHAT, RESPONSES, MESSAGES), "generate") | {GENERATE: "stream"}
COUNTING = (RESPONSES, MESSAGES, GENERATE)


class Expected(NamedTuple):
    """One vendor in one family: the base URL of a channel, where the call goes, what is added."""

    vendor: str
    family: str
    base_url: str
    url: str
    headers: list[str]


BEARER = f"authorization: Bearer {KEY}"
GENERATE_PATH = f"/v1beta/models/{UPSTREAM}:streamGenerateContent?alt=sse"
AZURE = "https://name.openai.azure.com"
GEMINI = "https://generativelanguage.googleapis.com"
REQUESTS = [
    Expected("openai", CHAT, "https://api.openai.com",
             "https://api.openai.com/v1/chat/completions", [BEARER, *JSON, *OPENAI]),
    Expected("openai", RESPONSES, "https://api.openai.com",
             "https://api.openai.com/v1/responses", [BEARER, *JSON, *OPENAI]),
    Expected("anthropic", MESSAGES, "https://api.anthropic.com",
             "https://api.anthropic.com/v1/messages", [f"x-api-key: {KEY}", *JSON, *VERSION]),
    Expected("gemini", GENERATE, GEMINI, GEMINI + GENERATE_PATH,
             [f"x-goog-api-key: {KEY}", *JSON]),
    Expected("azure-openai", CHAT, AZURE, AZURE + "/openai/v1/chat/completions",
             [f"api-key: {KEY}", *JSON]),
    Expected("azure-openai", RESPONSES, AZURE, AZURE + "/openai/v1/responses",
             [f"api-key: {KEY}", *JSON]),
    Expected("openrouter", CHAT, "https://openrouter.ai",
             "https://openrouter.ai/api/v1/chat/completions", [BEARER, *JSON]),
    Expected("openrouter", RESPONSES, "https://openrouter.ai",
             "https://openrouter.ai/api/v1/responses", [BEARER, *JSON]),
    Expected("openrouter", MESSAGES, "https://openrouter.ai",
             "https://openrouter.ai/api/v1/messages", [BEARER, *JSON, *VERSION]),
    Expected("deepseek", CHAT, "https://api.deepseek.com",
             "https://api.deepseek.com/v1/chat/completions", [BEARER, *JSON]),
    Expected("deepseek", MESSAGES, "https://api.deepseek.com",
             "https://api.deepseek.com/anthropic/v1/messages", [BEARER, *JSON, *VERSION]),
    Expected("groq", CHAT, "https://api.groq.com",
             "https://api.groq.com/openai/v1/chat/completions", [BEARER, *JSON]),
    Expected("groq", RESPONSES, "https://api.groq.com",
             "https://api.groq.com/openai/v1/responses", [BEARER, *JSON]),
    Expected("ollama", CHAT, "http://localhost:11434",
             "http://localhost:11434/v1/chat/completions", [BEARER, *JSON]),
    Expected("ollama", RESPONSES, "http://localhost:11434",
             "http://localhost:11434/v1/responses", [BEARER, *JSON]),
    Expected("ollama", MESSAGES, "http://localhost:11434",
             "http://localhost:11434/v1/messages", [BEARER, *JSON, *VERSION]),
    Expected("openai-compatible", CHAT, "https://llm.example/some/where",
             "https://llm.example/some/where/v1/chat/completions", [BEARER, *JSON]),
    Expected("openai-compatible", RESPONSES, "https://llm.example/some/where",
             "https://llm.example/some/where/v1/responses", [BEARER, *JSON]),
    Expected("demo", CHAT, "http://127.0.0.1:18800",
             "http://127.0.0.1:18800/v1/chat/completions", [BEARER, *JSON]),
    Expected("demo", RESPONSES, "http://127.0.0.1:18800",
             "http://127.0.0.1:18800/v1/responses", [BEARER, *JSON]),
    Expected("demo", MESSAGES, "http://127.0.0.1:18800",
             "http://127.0.0.1:18800/v1/messages", [BEARER, *JSON, *VERSION]),
    Expected("demo", GENERATE, "http://127.0.0.1:18800",
             "http://127.0.0.1:18800" + GENERATE_PATH, [BEARER, *JSON]),
]  # fmt: skip


def url_of(vendor, family, base_url, operation):
    """A call's URL, made as in handlers/relay: `pipeline.py` and `routing/probe.py`."""
    path = FAMILIES[family].upstream.path(operation, UPSTREAM, None)
    return base_url + VENDORS[vendor].prefixes.get(family, "") + path


def edited(vendor, family, body):
    operation = FAMILIES[family].client.operations[CREATE[family]]
    spans = top_level(body)
    peek = FAMILIES[family].client.peek(spans, operation, PUBLIC)
    return FAMILIES[family].upstream.edit_request(spans, peek, operation, UPSTREAM, VENDORS[vendor])


def name_of(value):
    return f"{value.vendor}-{value.family}"


def test_every_family_of_every_vendor_is_here():
    spoken = {(name, family) for name, vendor in VENDORS.items() for family in vendor.families}
    here = [(row.vendor, row.family) for row in REQUESTS]
    assert set(here) == spoken and len(here) == len(spoken)


@pytest.mark.parametrize("row", REQUESTS, ids=name_of)
def test_the_url(row):
    operation = FAMILIES[row.family].client.operations[CREATE[row.family]]
    assert url_of(row.vendor, row.family, row.base_url, operation) == row.url


@pytest.mark.parametrize("row", REQUESTS, ids=name_of)
def test_the_headers(row):
    lines = FAMILIES[row.family].upstream.request_headers(CLIENT, VENDORS[row.vendor], KEY)
    assert lines == row.headers


@pytest.mark.parametrize("row", REQUESTS, ids=name_of)
def test_the_body(row):
    sent, wanted = BODIES[row.family]
    got = edited(row.vendor, row.family, json.dumps(sent, separators=(",", ":")).encode())
    assert got == json.dumps(wanted, separators=(",", ":")).encode()


COUNTERS = {
    ("openai", RESPONSES): "https://x.example/v1/responses/input_tokens",
    ("anthropic", MESSAGES): "https://x.example/v1/messages/count_tokens",
    ("gemini", GENERATE): f"https://x.example/v1beta/models/{UPSTREAM}:countTokens",
    ("demo", RESPONSES): "https://x.example/v1/responses/input_tokens",
    ("demo", MESSAGES): "https://x.example/v1/messages/count_tokens",
    ("demo", GENERATE): f"https://x.example/v1beta/models/{UPSTREAM}:countTokens",
}


def test_who_counts_tokens_and_where():
    found = {
        (name, family): url_of(
            name, family, "https://x.example", FAMILIES[family].client.operations["count"]
        )
        for name, vendor in VENDORS.items()
        for family in COUNTING
        if vendor.counts and family in vendor.families
    }
    assert found == COUNTERS


@pytest.mark.parametrize("row", REQUESTS, ids=name_of)
def test_no_key_no_credential(row):
    lines = FAMILIES[row.family].upstream.request_headers(CLIENT, VENDORS[row.vendor], "")
    assert lines == row.headers[1:]


def test_the_page_about_vendors_agrees():
    page = (Path(__file__).parents[2] / "docs" / "vendors.md").read_text()
    page = page.partition("## Notes on vendors")[0]
    table = [line for line in page.splitlines() if line.startswith("| `")][1:]
    lines = {line.split("`")[1]: line for line in table}
    assert list(lines) == list(VENDORS)
    for row in REQUESTS:
        line, vendor = lines[row.vendor], VENDORS[row.vendor]
        name = {"bearer": "`Authorization: Bearer`"}.get(vendor.auth, f"`{vendor.auth}`")
        assert f"| {name} | {'yes' if vendor.counts else 'no'}" in line
        if vendor.name not in ("demo", "openai-compatible"):
            assert row.base_url.replace("//name.", "//NAME.") in line
        if vendor.name != "demo" and row.family != GENERATE:
            assert f"`{row.url.removeprefix(row.base_url)}`" in line
