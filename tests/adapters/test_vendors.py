"""The exact request to each vendor: URL, headers and body, as the relay makes them.

The URLs are those of the vendors' own documentation, with the base URLs in docs/vendors.md.
"""

import json
import re
from pathlib import Path
from typing import NamedTuple

import pytest

from adapters.json.jsonio import top_level
from adapters.models import traits_of
from adapters.registry import FAMILIES, FAMILY_NAMES, VENDORS, address_of
from handlers.relay.upstream.addressing import url_of
from tests.handlers.relay.routing.channels import channel

CHAT, RESPONSES, MESSAGES, GENERATE = FAMILY_NAMES
KEY = "sk-of-the-channel"
PUBLIC, UPSTREAM = "small", "maker/model-1"
JSON = ["content-type: application/json", "accept: application/json, text/event-stream"]
# Headers that a client sends; only those of a family or vendor are passed on.
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
# Streams, as clients request them, and as the vendor gets them.
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
    """The expected request to a vendor in a family: the path after the base URL, the headers, and
    whether a stream asks for its usage."""

    vendor: str
    family: str
    path: str
    headers: list[str]
    stream_options: bool = True


BASE_URLS = {
    "openai": "https://api.openai.com",
    "anthropic": "https://api.anthropic.com",
    "gemini": "https://generativelanguage.googleapis.com",
    "gemini-chat": "https://generativelanguage.googleapis.com",
    "azure-openai": "https://name.openai.azure.com",
    "openrouter": "https://openrouter.ai",
    "deepseek": "https://api.deepseek.com",
    "groq": "https://api.groq.com",
    "mistral": "https://api.mistral.ai",
    "xai": "https://api.x.ai",
    "together": "https://api.together.xyz",
    "fireworks": "https://api.fireworks.ai",
    "cerebras": "https://api.cerebras.ai",
    "nvidia": "https://integrate.api.nvidia.com",
    "perplexity": "https://api.perplexity.ai",
    "moonshot": "https://api.moonshot.ai",
    "zhipu": "https://api.z.ai",
    "minimax": "https://api.minimax.io",
    "alibaba": "https://dashscope-intl.aliyuncs.com",
    "volcengine": "https://ark.cn-beijing.volces.com",
    "siliconflow": "https://api.siliconflow.com",
    "cohere": "https://api.cohere.com",
    "jina": "https://deepsearch.jina.ai",
    "github-models": "https://models.github.ai",
    "huggingface": "https://router.huggingface.co",
    "deepinfra": "https://api.deepinfra.com",
    "sambanova": "https://api.sambanova.ai",
    "ollama": "http://localhost:11434",
    "vllm": "http://localhost:8000",
    "llama-cpp": "http://localhost:8080",
    "lm-studio": "http://localhost:1234",
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
    Expected("gemini-chat", CHAT, "/v1beta/openai/chat/completions", BEARER),
    Expected("azure-openai", CHAT, "/openai/v1/chat/completions", AZURE),
    Expected("azure-openai", RESPONSES, "/openai/v1/responses", AZURE),
    Expected("openrouter", CHAT, "/api/v1/chat/completions", BEARER),
    Expected("openrouter", RESPONSES, "/api/v1/responses", BEARER),
    Expected("openrouter", MESSAGES, "/api/v1/messages", VERSIONED),
    Expected("deepseek", CHAT, "/v1/chat/completions", BEARER),
    Expected("deepseek", MESSAGES, "/anthropic/v1/messages", VERSIONED),
    Expected("groq", CHAT, "/openai/v1/chat/completions", BEARER),
    Expected("groq", RESPONSES, "/openai/v1/responses", BEARER),
    Expected("mistral", CHAT, "/v1/chat/completions", BEARER, stream_options=False),
    Expected("xai", CHAT, "/v1/chat/completions", BEARER),
    Expected("xai", RESPONSES, "/v1/responses", BEARER),
    Expected("together", CHAT, "/v1/chat/completions", BEARER),
    Expected("fireworks", CHAT, "/inference/v1/chat/completions", BEARER),
    Expected("fireworks", RESPONSES, "/inference/v1/responses", BEARER),
    Expected("fireworks", MESSAGES, "/inference/v1/messages", VERSIONED),
    Expected("cerebras", CHAT, "/v1/chat/completions", BEARER),
    Expected("nvidia", CHAT, "/v1/chat/completions", BEARER),
    Expected("perplexity", CHAT, "/chat/completions", BEARER, stream_options=False),
    Expected("moonshot", CHAT, "/v1/chat/completions", BEARER),
    Expected("moonshot", MESSAGES, "/anthropic/v1/messages", VERSIONED),
    Expected("zhipu", CHAT, "/api/paas/v4/chat/completions", BEARER),
    Expected("zhipu", MESSAGES, "/api/anthropic/v1/messages", VERSIONED),
    Expected("minimax", CHAT, "/v1/chat/completions", BEARER),
    Expected("minimax", MESSAGES, "/anthropic/v1/messages", VERSIONED),
    Expected("alibaba", CHAT, "/compatible-mode/v1/chat/completions", BEARER),
    Expected("alibaba", RESPONSES, "/compatible-mode/v1/responses", BEARER),
    Expected("alibaba", MESSAGES, "/apps/anthropic/v1/messages", VERSIONED),
    Expected("volcengine", CHAT, "/api/v3/chat/completions", BEARER),
    Expected("volcengine", RESPONSES, "/api/v3/responses", BEARER),
    Expected("siliconflow", CHAT, "/v1/chat/completions", BEARER),
    Expected("siliconflow", MESSAGES, "/v1/messages", VERSIONED),
    Expected("cohere", CHAT, "/compatibility/v1/chat/completions", BEARER),
    Expected("jina", CHAT, "/v1/chat/completions", BEARER),
    Expected("github-models", CHAT, "/inference/chat/completions", BEARER),
    Expected("huggingface", CHAT, "/v1/chat/completions", BEARER),
    Expected("huggingface", RESPONSES, "/v1/responses", BEARER),
    Expected("deepinfra", CHAT, "/v1/openai/chat/completions", BEARER),
    Expected("deepinfra", MESSAGES, "/anthropic/v1/messages", VERSIONED),
    Expected("sambanova", CHAT, "/v1/chat/completions", BEARER),
    Expected("vllm", CHAT, "/v1/chat/completions", BEARER),
    Expected("vllm", RESPONSES, "/v1/responses", BEARER),
    Expected("vllm", MESSAGES, "/v1/messages", VERSIONED),
    Expected("llama-cpp", CHAT, "/v1/chat/completions", BEARER),
    Expected("llama-cpp", RESPONSES, "/v1/responses", BEARER),
    Expected("llama-cpp", MESSAGES, "/v1/messages", VERSIONED),
    Expected("lm-studio", CHAT, "/v1/chat/completions", BEARER),
    Expected("lm-studio", RESPONSES, "/v1/responses", BEARER),
    Expected("lm-studio", MESSAGES, "/v1/messages", VERSIONED),
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


def called(vendor, family, base_url):
    return channel("c", vendor=vendor, family=family, base_url=base_url)


def url_for(vendor, family, job):
    """Return the URL of a call."""
    operation = FAMILIES[family].client.operations[job]
    path = FAMILIES[family].upstream.path(operation, UPSTREAM, None)
    return url_of(called(vendor, family, BASE_URLS[vendor]), path)


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
    url = url_for(row.vendor, row.family, CREATE[row.family])
    assert url == BASE_URLS[row.vendor] + row.path
    request_headers = FAMILIES[row.family].upstream.request_headers
    assert request_headers(CLIENT, VENDORS[row.vendor], KEY) == row.headers
    assert request_headers(CLIENT, VENDORS[row.vendor], "") == row.headers[1:]
    sent, expected = (
        json.dumps(body, separators=(",", ":")).encode() for body in BODIES[row.family]
    )
    if not row.stream_options:
        expected = expected.replace(b'"stream_options":{"include_usage":true},', b"")
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
        (name, family): url_for(name, family, "count").removeprefix(BASE_URLS[name])
        for name, vendor in VENDORS.items()
        for family in COUNTING
        if vendor.counts and family in vendor.families
    } == COUNTERS


@pytest.mark.parametrize(
    ("base_url", "path"),
    [
        ("https://host", "/v1/chat/completions"),
        ("https://host/some/where", "/v1/chat/completions"),
        ("https://v2.host:81", "/v1/chat/completions"),
        ("https://host/v1", "/chat/completions"),
        ("https://host/api/paas/v4", "/chat/completions"),
        ("https://host/v1beta/openai", "/chat/completions"),
        ("https://host/v1/account/gateway", "/chat/completions"),
        ("https://host/vendor/x1", "/v1/chat/completions"),
    ],
)
def test_a_base_url_with_a_version_is_taken_as_it_is(base_url, path):
    assert address_of("openai-compatible", CHAT, base_url) == base_url + path
    assert address_of("groq", CHAT, base_url) == base_url + "/openai/v1/chat/completions"
    models = FAMILIES[CHAT].upstream.operations["list_models"].endpoint
    listing = base_url + path.replace("chat/completions", "models")
    assert url_of(called("openai-compatible", CHAT, base_url), models) == listing


def test_the_page_about_vendors_agrees():
    page = (Path(__file__).parents[2] / "docs" / "vendors.md").read_text()
    page = page.partition("## Base URLs with a version")[0]
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


# Names of fields, for features.
NAMES = {"end_user": "user", "parallel_tools": "parallel_tool_calls"}


def test_the_page_says_what_models_of_a_vendor_do_not_get():
    page = (Path(__file__).parents[2] / "docs" / "vendors.md").read_text()
    table = page.partition("## Sources")[2].partition("\n\nWhat the rows")[0]
    rows = [line.strip("|").split(" | ") for line in table.splitlines() if line.startswith("| `")]
    listed = {cells[0].strip(" `"): cells for cells in rows[1:]}
    assert len(listed) == 23 and listed.keys() < VENDORS.keys()
    for name, (*_, without, refused) in listed.items():
        traits = traits_of(name, CHAT, "")
        assert re.findall(r"`(\w+)`", without) == [NAMES.get(each, each) for each in traits.refuses]
        lacks = {"n": traits.choices, "logprobs": traits.logprobs}
        assert re.findall(r"`(\w+)`", refused) == [each for each, has in lacks.items() if not has]
