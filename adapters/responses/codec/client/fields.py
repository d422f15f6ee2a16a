"""Every top-level field of a client's request, and what it asks for.

Source: the request types of the official OpenAI SDK 3.57, of responses, of counts of their input
tokens and of compacting. Imported by this folder's ``__init__`` and by ``decode_request``.
"""

from collections.abc import Mapping

from adapters.family.codec import Asking

FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "input", "instructions", "stream", "max_output_tokens"), ""),
    **dict.fromkeys(("tools", "tool_choice", "stream_options"), ""),
    "access_programs": "vendor_terms",
    "background": "background",
    "background_options": "background",
    "context_management": "context_management",
    "conversation": "stored_state",
    "image": "image_detail",
    "include": "include",
    "max_tool_calls": "other",
    "metadata": "metadata",
    "moderation": "moderation",
    "parallel_tool_calls": "parallel_tools",
    "personality": "verbosity",
    "previous_response_id": "stored_state",
    "prompt": "stored_state",
    "prompt_cache_key": "cache_key",
    "prompt_cache_options": "cache_key",
    "prompt_cache_retention": "cache_key",
    "reasoning": "reasoning",
    "safety_identifier": "end_user",
    "service_tier": "tier",
    "store": "other",
    "temperature": "temperature",
    "text": "schema_output",
    "top_logprobs": "logprobs",
    "top_p": "top_p",
    "truncation": "truncation",
    "user": "end_user",
}
