"""Every top-level field of a client's request, and what it asks for.

Source: the request types of the official Anthropic SDK 2.14, beta ones included; three of them the
SDK sends as headers. Imported by the codec's ``__init__`` and by ``decode_request``.
"""

from collections.abc import Mapping

from adapters.family.codec import Asking

FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "messages", "max_tokens", "system", "stream"), ""),
    **dict.fromkeys(("tools", "tool_choice", "betas"), ""),
    "billing_policy": "vendor_terms",
    "cache_control": "cache_mark",
    "compaction": "output_modalities",
    "container": "container",
    "context_management": "context_management",
    "diagnostics": "include",
    "fallback_credit_token": "other",
    "fallbacks": "other",
    "inference_geo": "vendor_terms",
    "mcp_servers": "hosted_tool",
    "metadata": "end_user",
    "output_config": "schema_output",
    "output_format": "schema_output",
    "service_tier": "tier",
    "speed": "speed",
    "stop_sequences": "stop",
    "temperature": "temperature",
    "thinking": "reasoning",
    "thread": "stored_state",
    "top_k": "top_k",
    "top_p": "top_p",
    "user_profile_id": "vendor_terms",
    "workspace_id": "vendor_terms",
}
