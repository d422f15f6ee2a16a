"""Every top-level field of a client's request, and what it asks for.

Source: the request types of the official OpenAI SDK 3.57, and what servers of the family take
besides. Imported by this folder's ``__init__`` and by ``decode_request``.
"""

from collections.abc import Mapping

from adapters.family.codec import Asking

FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "messages", "stream", "max_tokens", "max_completion_tokens"), ""),
    **dict.fromkeys(("tools", "tool_choice", "functions", "function_call"), ""),
    "audio": "output_modalities",
    "frequency_penalty": "frequency_penalty",
    "logit_bias": "logit_bias",
    "logprobs": "logprobs",
    "metadata": "metadata",
    "modalities": "output_modalities",
    "moderation": "moderation",
    "n": "n",
    "parallel_tool_calls": "parallel_tools",
    "prediction": "prediction",
    "presence_penalty": "presence_penalty",
    "prompt_cache_key": "cache_key",
    "prompt_cache_options": "cache_key",
    "prompt_cache_retention": "cache_key",
    "reasoning_effort": "reasoning",
    "response_format": "schema_output",
    "safety_identifier": "end_user",
    "seed": "seed",
    "service_tier": "tier",
    "stop": "stop",
    "store": "other",
    "stream_options": "",
    "temperature": "temperature",
    "top_k": "top_k",
    "top_logprobs": "logprobs",
    "top_p": "top_p",
    "user": "end_user",
    "verbosity": "verbosity",
    "web_search_options": "hosted_search",
}
