"""Descriptions of what requests may ask for, and its name in each family. For conversions.

The features are those of adapters/ir/request.py. A family without a name for one cannot ask for it.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from adapters.ir.request import Feature


@dataclass(frozen=True, slots=True)
class Named:
    """The description of a feature, and its fields by family: chat completions, responses,
    messages, generate-content. "" if a family has none."""

    words: str
    chat_completions: str
    responses: str
    messages: str
    generate_content: str


FEATURES: Mapping[Feature, Named] = {
    "temperature": Named(
        *("randomness", "`temperature`", "`temperature`", "`temperature`", "`temperature`")
    ),
    "top_p": Named("nucleus sampling", "`top_p`", "`top_p`", "`top_p`", "`topP`"),
    "top_k": Named("sampling from the k likeliest tokens", "`top_k`", "", "`top_k`", "`topK`"),
    "seed": Named("repeatable sampling", "`seed`", "", "", "`seed`"),
    "frequency_penalty": Named(
        "penalty for frequent tokens", "`frequency_penalty`", "", "", "`frequencyPenalty`"
    ),
    "presence_penalty": Named(
        "penalty for tokens already used", "`presence_penalty`", "", "", "`presencePenalty`"
    ),
    "logit_bias": Named("bias for single tokens", "`logit_bias`", "", "", ""),
    "stop": Named("stop sequences", "`stop`", "", "`stop_sequences`", "`stopSequences`"),
    "n": Named("several answers at once", "`n` above 1", "", "", "`candidateCount` above 1"),
    "logprobs": Named(
        "log probabilities",
        *("`logprobs`, `top_logprobs`", "`top_logprobs`, `include`", "", "`responseLogprobs`"),
    ),
    "json_output": Named(
        "a JSON object as answer",
        "`response_format` json_object",
        "`text.format` json_object",
        "",
        "`responseMimeType` application/json",
    ),
    "schema_output": Named(
        "JSON by a schema as answer",
        "`response_format` json_schema",
        "`text.format` json_schema",
        "`output_config.format`",
        "`responseSchema`, `responseJsonSchema`",
    ),
    "verbosity": Named("length of the answer", "`verbosity`", "`text.verbosity`", "", ""),
    "reasoning": Named(
        "depth of thinking",
        "`reasoning_effort`",
        "`reasoning`",
        "`thinking`, `output_config.effort`",
        "`thinkingConfig`",
    ),
    "parallel_tools": Named(
        "one tool call at a time",
        "`parallel_tool_calls` false",
        "`parallel_tool_calls` false",
        "`disable_parallel_tool_use`",
        "",
    ),
    "output_modalities": Named(
        "an answer other than plain text",
        *("`modalities`, `audio`", "", "`compaction`", "`responseModalities`, `speechConfig` …"),
    ),
    "prediction": Named("a predicted answer", "`prediction`", "", "", ""),
    "image_data": Named(
        "an image in the request",
        *("`image_url` with a data URL", "`input_image` with a data URL", "`image` base64"),
        "`inlineData` image",
    ),
    "image_url": Named(
        "an image by URL",
        *("`image_url`", "`input_image`", "`image` with a URL", "`fileData` image"),
    ),
    "image_detail": Named(
        "detail level of an image", "`detail`", "`detail`", "", "`mediaResolution`"
    ),
    "audio": Named(
        "audio in the request", "`input_audio`", "`input_audio`", "", "`inlineData` audio"
    ),
    "document_data": Named(
        "a PDF in the request",
        *("`file.file_data`", "`input_file.file_data`", "`document` base64", "`inlineData` PDF"),
    ),
    "document_url": Named(
        "a PDF by URL", "", "`input_file.file_url`", "`document` with a URL", "`fileData`"
    ),
    "text_document": Named(
        "a text document",
        *("`file.file_data`", "`input_file.file_data`", "`document` text", "`inlineData` text"),
    ),
    "file_ref": Named(
        "an uploaded file", "`file.file_id`", "`file_id`", "`file_id`", "`fileData` of the vendor"
    ),
    "video": Named("video in the request", "", "", "", "`inlineData`, `fileData` video"),
    "custom_tool": Named("tools that take free text", "custom tools", "custom tools", "", ""),
    "tool_namespace": Named("groups of tools", "", "namespace tools", "", ""),
    "allowed_tools": Named(
        "a subset of the tools",
        *("`tool_choice` allowed_tools", "`tool_choice` allowed_tools", ""),
        "`allowedFunctionNames`",
    ),
    "hosted_search": Named(
        "web search by the vendor",
        *("`web_search_options`", "`web_search` tool", "`web_search` tool", "`googleSearch`"),
    ),
    "hosted_tool": Named(
        "other tools that the vendor runs", "", "hosted tools", "server tools", "`codeExecution` …"
    ),
    "forced_search": Named("a forced search", "", "`tool_choice`", "`tool_choice`", ""),
    "forced_hosted_tool": Named(
        "another forced tool of the vendor", "", "`tool_choice`", "`tool_choice`", ""
    ),
    "hosted_history": Named(
        "earlier use of the vendor's tools", "", "items", "blocks", "`executableCode` … parts"
    ),
    "strict_tool": Named(
        "arguments strictly by the schema", "`strict`", "`strict`", "`strict`", ""
    ),
    "end_user": Named(
        "id of the end user",
        *("`safety_identifier`, `user`", "`safety_identifier`, `user`", "`metadata.user_id`", ""),
    ),
    "metadata": Named("metadata of the call", "`metadata`", "`metadata`", "`metadata`", "`labels`"),
    "tier": Named(
        "service tier", "`service_tier`", "`service_tier`", "`service_tier`", "`serviceTier`"
    ),
    "speed": Named("a faster answer", "`service_tier` fast", "`service_tier` fast", "`speed`", ""),
    "cache_mark": Named(
        "cache breakpoints",
        *("`prompt_cache_breakpoint`", "`prompt_cache_breakpoint`", "`cache_control`", ""),
    ),
    "cache_key": Named("cache key", "`prompt_cache_key`", "`prompt_cache_key`", "", ""),
    "cached_content": Named("an existing cache", "", "", "", "`cachedContent`"),
    "safety_settings": Named(
        "safety thresholds that block nothing", "", "", "", "`safetySettings` BLOCK_NONE, OFF"
    ),
    "moderation": Named(
        "moderation by the vendor",
        *("`moderation`", "`moderation`", "", "`safetySettings`, `modelArmorConfig`"),
    ),
    "truncation": Named("truncation of a long history", "", "`truncation`", "", ""),
    "context_management": Named(
        "shortening of the history", "", "`context_management`", "`context_management`", ""
    ),
    "include": Named("additional output", "", "`include`", "", ""),
    "citations": Named("citations of documents", "", "", "`citations`", ""),
    "system_turn": Named(
        "instructions within the conversation",
        *("system or developer message", "system or developer message", "system message", ""),
    ),
    "prefill": Named(
        "an answer to continue",
        *("last message of the assistant", "last message of the assistant"),
        *("last message of the assistant", ""),
    ),
    "stored_state": Named(
        "state stored by the vendor",
        *("`audio.id`", "`previous_response_id` …", "`thread`", "`continuationToken` …"),
    ),
    "background": Named("an answer in the background", "", "`background`", "", ""),
    "container": Named("a container of the vendor", "", "", "`container`", ""),
    "vendor_terms": Named(
        "region, program and billing account at the vendor",
        *("", "`access_programs`", "`inference_geo`, `billing_policy` …", ""),
    ),
    "other": Named(
        *("fields the gateway does not know", "any other", "any other", "any other", "any other")
    ),
}

# The cases of the matrix, by their names in tests/translation/cases.py.
CASES: Mapping[str, str] = {
    "text": "a text",
    "multi_turn": "several turns",
    "system": "instructions",
    "image": "an image",
    "parallel_tools": "two parallel tool calls, arguments in chunks",
    "tool_error": "tool results, one of them an error",
    "forced_tool": "a forced tool",
    "structured_output": "JSON by a schema",
    "reasoning": "thinking with tools; opaque state returns to its upstream",
    "stop": "a stop sequence",
    "length": "the token limit",
    "cached_usage": "cached tokens: counts and cost",
    "refusal": "the model declines",
    "error_before": "the upstream is overloaded",
    "error_midstream": "an error within a stream",
    "truncated": "the answer is cut off",
}
