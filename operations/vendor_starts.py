"""With what a vendor's first channel begins: its address, and models with their prices.

A start, to be edited later: vendors rename models and change prices. For quickstart and the first
run of the Hub.
"""

from collections.abc import Mapping
from typing import NamedTuple

Prices = Mapping[str, str]


class VendorStart(NamedTuple):
    """First channels of a vendor. `variable`: of the environment, where its key may be."""

    name: str
    variable: str
    base_url: str
    models: Mapping[str, Prices]


VENDOR_STARTS = (
    VendorStart(
        "openai",
        "OPENAI_API_KEY",
        "https://api.openai.com",
        {
            "gpt-4.1": {"input": "2.00", "output": "8.00", "cache_read": "0.50"},
            "gpt-4.1-mini": {"input": "0.40", "output": "1.60", "cache_read": "0.10"},
        },
    ),
    VendorStart(
        "anthropic",
        "ANTHROPIC_API_KEY",
        "https://api.anthropic.com",
        {
            "claude-sonnet-4-5": {
                "input": "3.00",
                "output": "15.00",
                "cache_read": "0.30",
                "cache_write": "3.75",
                "cache_write_1h": "6.00",
            },
        },
    ),
    VendorStart(
        "gemini",
        "GEMINI_API_KEY",
        "https://generativelanguage.googleapis.com",
        {"gemini-2.5-flash": {"input": "0.30", "output": "2.50", "cache_read": "0.075"}},
    ),
)
DEMO_MODELS = {
    "chat_completions": "demo-chat",
    "responses": "demo-responses",
    "messages": "demo-messages",
    "generate_content": "demo-gemini",
}
DEMO_PRICES = {"input": "1.00", "output": "4.00"}
