"""The tables of families and vendors: the only file of this package that lists them.

A family is a folder and a word in ``_MODULES``; its codecs translate to and from all others. A
vendor of a known family is a row. Imported by handlers, the relay, commands and tests.
"""

from adapters import chat_completions, generate_content, messages, responses
from adapters.bridge import Pairing, native
from adapters.family import Family, Vendor
from adapters.family.codec import Codecs
from adapters.translate import Translator

_MODULES = (chat_completions, responses, messages, generate_content)
FAMILIES: dict[str, Family] = {module.FAMILY.name: module.FAMILY for module in _MODULES}

# how a channel (the second family) serves clients of the first
PAIRINGS: dict[tuple[str, str], Pairing] = {
    (family.name, family.name): native(family) for family in FAMILIES.values()
}

CODECS: dict[str, Codecs] = {module.FAMILY.name: module.CODECS for module in _MODULES}

# how a channel of the second family serves clients of the first, where they differ
TRANSLATORS: dict[tuple[str, str], Translator] = {
    (client, upstream): Translator(FAMILIES[upstream], of_client.client, of_upstream.upstream)
    for client, of_client in CODECS.items()
    for upstream, of_upstream in CODECS.items()
    if client != upstream
}

# what a family is written anew with, for an answer in the other form than the one asked for
REFRAMERS: dict[str, Translator] = {
    name: Translator(FAMILIES[name], codecs.client, codecs.upstream)
    for name, codecs in CODECS.items()
}

_LOSSES: dict[tuple[str, str], int] = {
    (client, upstream): rank
    for client, ranks in (
        ("chat_completions", {"responses": 1, "generate_content": 2, "messages": 3}),
        ("responses", {"chat_completions": 1, "generate_content": 2, "messages": 2}),
        ("messages", {"generate_content": 1, "responses": 2, "chat_completions": 3}),
        ("generate_content", {"chat_completions": 1, "responses": 2, "messages": 3}),
    )
    for upstream, rank in ranks.items()
}

# How much a call of the first family loses at a channel of the second, where it is translated:
# of a model's channels those with less are tried first. An order, no measure; docs/channels.md
# lists the losses of each pair.
LOSSES: dict[tuple[str, str], int] = {pair: _LOSSES[pair] for pair in TRANSLATORS}

FAMILY_NAMES = tuple(FAMILIES)  # in the order of lists
_CHAT, _RESPONSES, _MESSAGES, _GENERATE = FAMILY_NAMES
_OPENAI = frozenset({_CHAT, _RESPONSES})


def _under(prefix: str, families: frozenset[str]) -> dict[str, str]:
    return dict.fromkeys(families, prefix)


# Facts of the vendors' own documentation, explained in docs/vendors.md. Endpoints and options that
# it does not mention are not used.
VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
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
        Vendor("azure-openai", _OPENAI, "api-key", _under("/openai", _OPENAI), counts=False),
        Vendor(
            "openrouter",
            _OPENAI | {_MESSAGES},
            "bearer",
            _under("/api", _OPENAI | {_MESSAGES}),
            counts=False,
        ),
        Vendor(
            "deepseek",
            frozenset({_CHAT, _MESSAGES}),
            "bearer",
            {_MESSAGES: "/anthropic"},
            counts=False,
        ),
        Vendor("groq", _OPENAI, "bearer", _under("/openai", _OPENAI), counts=False),
        Vendor("ollama", _OPENAI | {_MESSAGES}, "bearer", counts=False),
        Vendor("openai-compatible", _OPENAI, "bearer", counts=False),
        Vendor("demo", frozenset(FAMILY_NAMES), "bearer", threads=True),
    )
}
