"""Vendors as shown to people: label, list, usual base URL, and the page where keys are made.

One row for each vendor of the registry. Base URLs are from docs/vendors.md, pages from the vendors'
own documentation; empty where there is none. Imported by the Hub and operations, never by the
relay.
"""

from collections.abc import Mapping
from typing import NamedTuple

MAKERS, RESELLERS, OWN = "makers", "resellers", "own"
LISTS = (MAKERS, RESELLERS, OWN)
"""Makers of models; clouds and resellers; self-hosted servers and other gateways."""


class VendorCard(NamedTuple):
    """A vendor's texts for people. `monogram`: two letters, never the vendor's logo."""

    label: str
    monogram: str
    listed: str
    base_url: str = ""
    keys_url: str = ""


CARDS: Mapping[str, VendorCard] = {
    "openai": VendorCard(
        *("OpenAI", "Oa", MAKERS, "https://api.openai.com"), "https://platform.openai.com/api-keys"
    ),
    "anthropic": VendorCard(
        *("Anthropic", "An", MAKERS, "https://api.anthropic.com"),
        "https://console.anthropic.com/settings/keys",
    ),
    "gemini": VendorCard(
        *("Google Gemini", "Ge", MAKERS, "https://generativelanguage.googleapis.com"),
        "https://aistudio.google.com/apikey",
    ),
    "gemini-chat": VendorCard(
        *("Google Gemini, chat", "Gc", MAKERS, "https://generativelanguage.googleapis.com"),
        "https://aistudio.google.com/apikey",
    ),
    "deepseek": VendorCard(
        *("DeepSeek", "De", MAKERS, "https://api.deepseek.com"),
        "https://platform.deepseek.com/api_keys",
    ),
    "moonshot": VendorCard(
        *("Moonshot AI", "Mo", MAKERS, "https://api.moonshot.ai"),
        "https://platform.moonshot.ai/console/api-keys",
    ),
    "zhipu": VendorCard(
        *("Z.AI", "Za", MAKERS, "https://api.z.ai"), "https://z.ai/manage-apikey/apikey-list"
    ),
    "alibaba": VendorCard(
        *("Alibaba Model Studio", "Al", MAKERS, "https://dashscope-intl.aliyuncs.com"),
        "https://modelstudio.console.alibabacloud.com/?tab=dashboard#/api-key",
    ),
    "minimax": VendorCard(
        *("MiniMax", "Mm", MAKERS, "https://api.minimax.io"),
        "https://platform.minimax.io/user-center/basic-information/interface-key",
    ),
    "mistral": VendorCard(
        *("Mistral", "Mi", MAKERS, "https://api.mistral.ai"),
        "https://console.mistral.ai/api-keys",
    ),
    "xai": VendorCard(*("xAI", "Xa", MAKERS, "https://api.x.ai"), "https://console.x.ai"),
    "cohere": VendorCard(
        *("Cohere", "Co", MAKERS, "https://api.cohere.com"),
        "https://dashboard.cohere.com/api-keys",
    ),
    "perplexity": VendorCard(
        *("Perplexity", "Pe", MAKERS, "https://api.perplexity.ai"),
        "https://www.perplexity.ai/settings/api",
    ),
    "jina": VendorCard(
        *("Jina AI", "Ji", MAKERS, "https://deepsearch.jina.ai"), "https://jina.ai/api-dashboard"
    ),
    "azure-openai": VendorCard(
        *("Azure OpenAI", "Az", RESELLERS, "https://NAME.openai.azure.com"),
        "https://portal.azure.com",
    ),
    "openrouter": VendorCard(
        *("OpenRouter", "Or", RESELLERS, "https://openrouter.ai"),
        "https://openrouter.ai/settings/keys",
    ),
    "groq": VendorCard(
        *("Groq", "Gq", RESELLERS, "https://api.groq.com"), "https://console.groq.com/keys"
    ),
    "together": VendorCard(
        *("Together AI", "To", RESELLERS, "https://api.together.xyz"),
        "https://api.together.ai/settings/api-keys",
    ),
    "fireworks": VendorCard(
        *("Fireworks AI", "Fi", RESELLERS, "https://api.fireworks.ai"),
        "https://app.fireworks.ai/settings/users/api-keys",
    ),
    "cerebras": VendorCard(
        *("Cerebras", "Ce", RESELLERS, "https://api.cerebras.ai"), "https://cloud.cerebras.ai"
    ),
    "nvidia": VendorCard(
        *("NVIDIA NIM", "Nv", RESELLERS, "https://integrate.api.nvidia.com"),
        "https://build.nvidia.com/settings/api-keys",
    ),
    "volcengine": VendorCard(
        *("Volcengine Ark", "Vo", RESELLERS, "https://ark.cn-beijing.volces.com"),
        "https://console.volcengine.com/ark",
    ),
    "siliconflow": VendorCard(
        *("SiliconFlow", "Si", RESELLERS, "https://api.siliconflow.com"),
        "https://cloud.siliconflow.com/account/ak",
    ),
    "github-models": VendorCard(
        *("GitHub Models", "Gh", RESELLERS, "https://models.github.ai"),
        "https://github.com/settings/tokens",
    ),
    "huggingface": VendorCard(
        *("Hugging Face", "Hf", RESELLERS, "https://router.huggingface.co"),
        "https://huggingface.co/settings/tokens",
    ),
    "deepinfra": VendorCard(
        *("DeepInfra", "Di", RESELLERS, "https://api.deepinfra.com"),
        "https://deepinfra.com/dash/api_keys",
    ),
    "sambanova": VendorCard(
        *("SambaNova", "Sn", RESELLERS, "https://api.sambanova.ai"),
        "https://cloud.sambanova.ai/apis",
    ),
    "vllm": VendorCard("vLLM", "vL", OWN, "http://localhost:8000"),
    "ollama": VendorCard("Ollama", "Ol", OWN, "http://localhost:11434"),
    "llama-cpp": VendorCard("llama.cpp", "Lc", OWN, "http://localhost:8080"),
    "lm-studio": VendorCard("LM Studio", "Lm", OWN, "http://localhost:1234"),
    "openai-compatible": VendorCard("Another gateway", "··", OWN),
    "demo": VendorCard("Demo", "Dm", OWN, "http://127.0.0.1:18800"),
}
