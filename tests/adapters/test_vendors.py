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
    "anthropic-workspace-id": "wrkspc_1",
    "anthropic-user-profile-id": "profile-1",
    "anthropic-new": "set\r\nx: y",
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
STREAMED = {"stream": True, "messages": [MESSAGE], "odd": 1}
BODIES = {
    CHAT: (
        {"model": PUBLIC, **STREAMED},
        {"stream_options": {"include_usage": True}, "model": UPSTREAM, **STREAMED},
    ),
    RESPONSES: (
        {"model": PUBLIC, "stream": True, "input": "Hi", "odd": 1},
        {"model": UPSTREAM, "stream": True, "input": "Hi", "odd": 1},
    ),
    MESSAGES: (
        {"model": PUBLIC, "max_tokens": 5, **STREAMED},
        {"model": UPSTREAM, "max_tokens": 5, **STREAMED},
    ),
    GENERATE: ({"contents": CONTENTS, "odd": 1}, {"contents": CONTENTS, "odd": 1}),
}
CREATE = dict.fromkeys((CHAT, RESPONSES, MESSAGES), "generate") | {GENERATE: "stream"}
COUNTING = (RESPONSES, MESSAGES, GENERATE)


class Expected(NamedTuple):
    """One vendor in one family: where the call goes under the base URL, and the headers."""

    vendor: str
    family: str
    path: str
    headers: list[str]


BASE_URLS = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "azure-openai": "https://name.openai.azure.com",
    "openrouter": "https://openrouter.ai",
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com",
    "ollama": "http://localhost:11434",
    "openai-compatible": "https://llm.example/some/where",
    "demo": "http://127.0.0.1:18800",
}
BEARER = [f"authorization: Bearer {KEY}", *JSON]
FIRST_PARTY, AZURE = [*BEARER, *OPENAI], [f"api-key: {KEY}", *JSON]
VERSIONED = [*BEARER, *VERSION]
ANTHROPIC = [f"x-api-key: {KEY}", *JSON, *VERSION, "anthropic-user-profile-id: profile-1"]
GOOGLE = [f"x-goog-api-key: {KEY}", *JSON]
GENERATE_PATH = f"/v1beta/models/{UPSTREAM}:streamGenerateContent?alt=sse"
REQUESTS = [
    Expected("openai", CHAT, "/v1/chat/completions", FIRST_PARTY),
    Expected("openai", RESPONSES, "/v1/responses", FIRST_PARTY),
    Expected("anthropic", MESSAGES, "/v1/messages", ANTHROPIC),
    Expected("gemini", GENERATE, GENERATE_PATH, GOOGLE),
    Expected("azure-openai", CHAT, "/openai/v1/chat/completions", AZURE),
    Expected("azure-openai", RESPONSES, "/openai/v1/responses", AZURE),
    Expected("openrouter", CHAT, "/api/v1/chat/completions", BEARER),
    Expected("openrouter", RESPONSES, "/api/v1/responses", BEARER),
    Expected("openrouter", MESSAGES, "/api/v1/messages", VERSIONED),
    Expected("deepseek", CHAT, "/v1/chat/completions", BEARER),
    Expected("deepseek", MESSAGES, "/anthropic/v1/messages", VERSIONED),
    Expected("groq", CHAT, "/openai/v1/chat/completions", BEARER),
    Expected("groq", RESPONSES, "/openai/v1/responses", BEARER),
    Expected("ollama", CHAT, "/v1/chat/completions", BEARER),
    Expected("ollama", RESPONSES, "/v1/responses", BEARER),
    Expected("ollama", MESSAGES, "/v1/messages", VERSIONED),
    Expected("openai-compatible", CHAT, "/v1/chat/completions", BEARER),
    Expected("openai-compatible", RESPONSES, "/v1/responses", BEARER),
    Expected("demo", CHAT, "/v1/chat/completions", BEARER),
    Expected("demo", RESPONSES, "/v1/responses", BEARER),
    Expected("demo", MESSAGES, "/v1/messages", VERSIONED),
    Expected("demo", GENERATE, GENERATE_PATH, BEARER),
]


def path_of(vendor, family, job):
    """Return where a call goes under the base URL, made as in handlers/relay."""
    operation = FAMILIES[family].client.operations[job]
    path = FAMILIES[family].upstream.path(operation, UPSTREAM, None)
    return VENDORS[vendor].prefixes.get(family, "") + path


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
def test_the_request(row):
    assert path_of(row.vendor, row.family, CREATE[row.family]) == row.path
    request_headers = FAMILIES[row.family].upstream.request_headers
    assert request_headers(CLIENT, VENDORS[row.vendor], KEY) == row.headers
    assert request_headers(CLIENT, VENDORS[row.vendor], "") == row.headers[1:]
    sent, expected = (
        json.dumps(body, separators=(",", ":")).encode() for body in BODIES[row.family]
    )
    assert edited(row.vendor, row.family, sent) == expected


COUNTERS = {
    ("openai", RESPONSES): "/v1/responses/input_tokens",
    ("anthropic", MESSAGES): "/v1/messages/count_tokens",
    ("gemini", GENERATE): f"/v1beta/models/{UPSTREAM}:countTokens",
    ("demo", RESPONSES): "/v1/responses/input_tokens",
    ("demo", MESSAGES): "/v1/messages/count_tokens",
    ("demo", GENERATE): f"/v1beta/models/{UPSTREAM}:countTokens",
}


def test_who_counts_tokens_and_where():
    assert {
        (name, family): path_of(name, family, "count")
        for name, vendor in VENDORS.items()
        for family in COUNTING
        if vendor.counts and family in vendor.families
    } == COUNTERS


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
            assert BASE_URLS[row.vendor].replace("//name.", "//NAME.") in line
        if vendor.name != "demo" and row.family != GENERATE:
            assert f"`{row.path}`" in line
