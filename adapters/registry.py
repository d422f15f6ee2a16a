"""The tables of families and vendors.

A family is a folder and a name in ``_MODULES``; its codecs, which translate to and from all other
families, are in ``codecs.py``. A vendor of a known family is a row. Imported by handlers, the
relay, commands and tests.
"""

import re
from dataclasses import replace
from functools import lru_cache
from urllib.parse import urlsplit

from adapters import chat_completions, generate_content, messages, responses
from adapters.family import Family, Vendor

_MODULES = (chat_completions, responses, messages, generate_content)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in _MODULES}

# (client's family, channel's family) -> rank of the losses of a translation. Of a model's channels
# those with fewer losses are tried first. The ranks are an order, not a measure; docs/channels.md
# lists the losses of each pair.
LOSSES: dict[tuple[str, str], int] = {
    (client, upstream): rank
    for client, ranks in (
        ("chat_completions", {"responses": 1, "generate_content": 2, "messages": 3}),
        ("responses", {"chat_completions": 1, "generate_content": 2, "messages": 2}),
        ("messages", {"generate_content": 1, "responses": 2, "chat_completions": 3}),
        ("generate_content", {"chat_completions": 1, "responses": 2, "messages": 3}),
    )
    for upstream, rank in ranks.items()
}

FAMILY_NAMES = tuple(FAMILIES)  # in display order
_CHAT, _RESPONSES, _MESSAGES, _GENERATE = FAMILY_NAMES
_OPENAI = frozenset({_CHAT, _RESPONSES})


_CHAT_ONLY = frozenset({_CHAT})
_CHAT_AND_MESSAGES = frozenset({_CHAT, _MESSAGES})
_ALL_BUT_GENERATE = _OPENAI | {_MESSAGES}
ALL_ENDPOINTS = frozenset(
    ["embeddings", "completions", "moderations", "rerank", "images", "speech", "transcriptions"]
)
"""Rows of adapters/endpoints, for servers whose endpoints are not known."""

# Endpoints of each vendor, from the same sources. Vendors not listed here have none.
_ENDPOINTS: dict[str, str] = {
    "openai": "embeddings completions moderations images speech transcriptions",
    "gemini": "embeddings",
    "gemini-chat": "embeddings images",
    "azure-openai": "embeddings completions images speech transcriptions",
    "openrouter": "embeddings completions",
    "groq": "speech transcriptions",
    "mistral": "embeddings moderations transcriptions",
    "xai": "images",
    "together": "embeddings completions rerank images speech transcriptions",
    "fireworks": "embeddings completions rerank",
    "cerebras": "completions",
    "nvidia": "embeddings completions",
    "zhipu": "embeddings images",
    "alibaba": "embeddings",
    "volcengine": "embeddings images",
    "siliconflow": "embeddings rerank images speech transcriptions",
    "cohere": "embeddings rerank",
    "jina": "embeddings rerank",
    "github-models": "embeddings",
    "deepinfra": "embeddings completions images speech transcriptions",
    "sambanova": "embeddings transcriptions",
    "ollama": "embeddings completions",
    "vllm": "embeddings completions rerank transcriptions",
    "llama-cpp": "embeddings completions rerank",
    "lm-studio": "embeddings completions",
    "openai-compatible": " ".join(ALL_ENDPOINTS),
}


def _under(root: str, families: frozenset[str]) -> dict[str, str]:
    return dict.fromkeys(families, root)


# Facts from the vendors' own documentation, explained in docs/vendors.md with source and date; the
# traits of their models are in ``models.py``. Undocumented endpoints and options are not used.
VENDORS: dict[str, Vendor] = {
    vendor.name: replace(vendor, endpoints=frozenset(_ENDPOINTS.get(vendor.name, "").split()))
    for vendor in (
        Vendor("openai", _OPENAI, "bearer", forward_openai_headers=True),
        Vendor(
            "anthropic",
            frozenset({_MESSAGES}),
            "x-api-key",
            forward_anthropic_headers=True,
            threads=True,
        ),
        Vendor("gemini", frozenset({_GENERATE}), "x-goog-api-key"),
        Vendor("gemini-chat", _CHAT_ONLY, "bearer", {_CHAT: "/v1beta/openai"}, counts=False),
        Vendor("azure-openai", _OPENAI, "api-key", _under("/openai/v1", _OPENAI), counts=False),
        Vendor(
            "openrouter",
            _ALL_BUT_GENERATE,
            "bearer",
            _under("/api/v1", _ALL_BUT_GENERATE),
            counts=False,
        ),
        Vendor(
            "deepseek", _CHAT_AND_MESSAGES, "bearer", {_MESSAGES: "/anthropic/v1"}, counts=False
        ),
        Vendor("groq", _OPENAI, "bearer", _under("/openai/v1", _OPENAI), counts=False),
        Vendor("mistral", _CHAT_ONLY, "bearer", counts=False, stream_options=False),
        Vendor("xai", _OPENAI, "bearer", counts=False),
        Vendor("together", _CHAT_ONLY, "bearer", counts=False),
        Vendor(
            "fireworks",
            _ALL_BUT_GENERATE,
            "bearer",
            _under("/inference/v1", _ALL_BUT_GENERATE),
            counts=False,
        ),
        Vendor("cerebras", _CHAT_ONLY, "bearer", counts=False),
        Vendor("nvidia", _CHAT_ONLY, "bearer", counts=False),
        Vendor("perplexity", _CHAT_ONLY, "bearer", {_CHAT: ""}, counts=False, stream_options=False),
        Vendor(
            "moonshot", _CHAT_AND_MESSAGES, "bearer", {_MESSAGES: "/anthropic/v1"}, counts=False
        ),
        Vendor(
            "zhipu",
            _CHAT_AND_MESSAGES,
            "bearer",
            {_CHAT: "/api/paas/v4", _MESSAGES: "/api/anthropic/v1"},
            counts=False,
        ),
        Vendor("minimax", _CHAT_AND_MESSAGES, "bearer", {_MESSAGES: "/anthropic/v1"}, counts=False),
        Vendor(
            "alibaba",
            _ALL_BUT_GENERATE,
            "bearer",
            {**_under("/compatible-mode/v1", _OPENAI), _MESSAGES: "/apps/anthropic/v1"},
            counts=False,
        ),
        Vendor("volcengine", _OPENAI, "bearer", _under("/api/v3", _OPENAI), counts=False),
        Vendor("siliconflow", _CHAT_AND_MESSAGES, "bearer", counts=False),
        Vendor(
            *("cohere", _CHAT_ONLY, "bearer", {_CHAT: "/compatibility/v1"}),
            counts=False,
            paths={"rerank": "/v2/rerank"},
        ),
        Vendor("jina", _CHAT_ONLY, "bearer", counts=False),
        Vendor("github-models", _CHAT_ONLY, "bearer", {_CHAT: "/inference"}, counts=False),
        Vendor("huggingface", _OPENAI, "bearer", counts=False),
        Vendor(
            "deepinfra",
            _CHAT_AND_MESSAGES,
            "bearer",
            {_CHAT: "/v1/openai", _MESSAGES: "/anthropic/v1"},
            counts=False,
        ),
        Vendor("sambanova", _CHAT_ONLY, "bearer", counts=False),
        Vendor("ollama", _ALL_BUT_GENERATE, "bearer", counts=False),
        Vendor("vllm", _ALL_BUT_GENERATE, "bearer", counts=False, any_version=True),
        Vendor("llama-cpp", _ALL_BUT_GENERATE, "bearer", counts=False, any_version=True),
        Vendor("lm-studio", _ALL_BUT_GENERATE, "bearer", counts=False, any_version=True),
        Vendor("openai-compatible", _OPENAI, "bearer", counts=False, any_version=True),
        Vendor("demo", frozenset(FAMILY_NAMES), "bearer", threads=True),
    )
}

_VERSION = re.compile(r"/v\d", re.ASCII)  # the start of a version segment, anywhere in a path


def upstream_url(vendor: str, family: str, base_url: str, path: str) -> str:
    """Return the URL for a family's path at a vendor."""
    root = _root_of(vendor, family, base_url)
    if root is None:
        return base_url + path
    return root + path.removeprefix("/v1beta").removeprefix("/v1")  # drop the family's own version


def address_of(vendor: str, family: str, base_url: str) -> str:
    """Return the URL that calls of a channel go to, with ``{model}`` in place of a model's name."""
    endpoint = FAMILIES[family].upstream.operations["generate"].endpoint
    return upstream_url(vendor, family, base_url, endpoint)


@lru_cache(maxsize=1024)
def _root_of(vendor: str, family: str, base_url: str) -> str | None:
    """Return the URL before the operation. None: the base URL plus the family's own version."""
    row = VENDORS[vendor]
    if row.any_version and _VERSION.search(urlsplit(base_url).path):
        return base_url
    root = row.roots.get(family)
    return None if root is None else base_url + root
