"""The tables of families and vendors: the only file of this package that knows which there are.

A family is a folder and a line here; a vendor of a known family is a row. Imported by handlers,
the relay, commands and tests.
"""

from adapters.chat_completions import FAMILY as CHAT_COMPLETIONS
from adapters.family import Family, Vendor
from adapters.generate_content import FAMILY as GENERATE_CONTENT
from adapters.messages import FAMILY as MESSAGES
from adapters.responses import FAMILY as RESPONSES

# In the order in which they are shown.
FAMILY_NAMES = ("chat_completions", "responses", "messages", "generate_content")

FAMILIES: dict[str, Family] = {
    family.name: family for family in (CHAT_COMPLETIONS, RESPONSES, MESSAGES, GENERATE_CONTENT)
}

_OPENAI_FAMILIES = frozenset({"chat_completions", "responses"})

VENDORS: dict[str, Vendor] = {
    vendor.name: vendor
    for vendor in (
        Vendor("openai", _OPENAI_FAMILIES, "bearer", forward_openai_headers=True),
        Vendor("openai-compatible", _OPENAI_FAMILIES, "bearer"),
        Vendor("anthropic", frozenset({"messages"}), "x-api-key"),
        Vendor("gemini", frozenset({"generate_content"}), "x-goog-api-key"),
        Vendor("demo", frozenset(FAMILY_NAMES), "bearer"),
    )
}
