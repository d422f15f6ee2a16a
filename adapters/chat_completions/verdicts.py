"""What becomes of what requests ask for, at upstreams of the chat completions family.

Source: the request types of the official OpenAI SDKs; what a model cannot take is a trait of it.
Imported by this folder's ``__init__``.
"""

from collections.abc import Mapping

from adapters.family.codec import Verdict
from adapters.family.traits import Traits
from adapters.ir.request import Feature

VERDICTS: Mapping[Feature, Verdict] = {
    "temperature": "map",
    "top_p": "map",
    "top_k": "note",  # servers have it, each by a name of its own
    "seed": "map",
    "frequency_penalty": "map",
    "presence_penalty": "map",
    "logit_bias": "map",
    "stop": "map",
    "n": "map",
    "logprobs": "map",
    "json_output": "map",
    "schema_output": "map",
    "verbosity": "note",
    "reasoning": "map",
    "parallel_tools": "map",
    "output_modalities": "refuse",
    "prediction": "note",
    "image_data": "map",
    "image_url": "map",
    "image_detail": "map",
    "audio": "refuse",
    "document_data": "map",
    "document_url": "refuse",  # no field; the gateway fetches nothing
    "text_document": "map",
    "file_ref": "refuse",
    "video": "refuse",
    "custom_tool": "map",
    "tool_namespace": "map",
    "allowed_tools": "map",
    "hosted_search": "note",
    "hosted_tool": "note",
    "forced_hosted_tool": "refuse",
    "hosted_history": "note",
    "strict_tool": "map",
    "end_user": "map",
    "metadata": "note",  # it is taken with store alone
    "tier": "note",
    "speed": "note",
    "cache_mark": "note",
    "cache_key": "note",
    "cached_content": "refuse",
    "safety_settings": "note",
    "moderation": "refuse",
    "truncation": "note",
    "context_management": "note",
    "include": "note",
    "citations": "note",
    "system_turn": "map",
    "prefill": "note",  # it is sent, but seldom continued
    "stored_state": "refuse",
    "background": "refuse",
    "container": "refuse",
    "vendor_terms": "refuse",
    "other": "note",
}

# What models without ``sampling`` refuse.
_SAMPLING: tuple[Feature, ...] = (
    *("temperature", "top_p", "frequency_penalty", "presence_penalty", "logit_bias"),
)


def verdicts_of(traits: Traits) -> Mapping[Feature, Verdict]:
    """The verdicts that differ for a model with these traits."""
    special: dict[Feature, Verdict] = {}
    if not traits.sampling:
        special |= dict.fromkeys(_SAMPLING, "note")
    if not (traits.sampling and traits.logprobs):
        special |= {"logprobs": "refuse", "logit_bias": "note"}
    if not traits.choices:
        special["n"] = "refuse"
    if not traits.images:
        special |= {"image_data": "refuse", "image_url": "refuse"}
    if not traits.documents:
        special["document_data"] = "refuse"
    if traits.audio:
        special["audio"] = "map"
    if traits.structured == "none":
        special["schema_output"] = "refuse"
    if traits.thinking == "none":
        special["reasoning"] = "note"
    if traits.verbosity:
        special["verbosity"] = "map"
    if traits.search:
        special["hosted_search"] = "map"
    if traits.openai_extras:
        special |= {"tier": "map", "speed": "map", "cache_key": "map"}
    return special
