"""What becomes, at an upstream of this family, of what clients of others ask for.

A row for each feature; the reasons are in docs/conversions.md. Imported by this folder's
``__init__``.
"""

from collections.abc import Mapping
from functools import lru_cache

from adapters.family.codec import Verdict
from adapters.family.traits import Traits
from adapters.ir.request import Feature
from adapters.responses.encode_request import has_search

VERDICTS: dict[Feature, Verdict] = {
    "temperature": "map",
    "top_p": "map",
    "top_k": "note",
    "seed": "note",
    "frequency_penalty": "note",
    "presence_penalty": "note",
    # token ids of one vendor's tokenizer, which mean nothing to others
    "logit_bias": "note",
    "stop": "map",  # the gateway cuts the text
    "n": "refuse",
    "logprobs": "map",
    "json_output": "map",
    "schema_output": "map",
    "verbosity": "map",
    "reasoning": "map",
    "parallel_tools": "map",
    "output_modalities": "refuse",
    "prediction": "note",
    "image_data": "map",
    "image_url": "map",
    "image_detail": "map",
    "audio": "refuse",
    "document_data": "map",
    "document_url": "map",
    "text_document": "map",
    "file_ref": "refuse",
    "video": "refuse",
    "custom_tool": "map",
    "tool_namespace": "map",
    "allowed_tools": "map",
    "hosted_search": "map",
    "hosted_tool": "note",
    "forced_hosted_tool": "refuse",
    "hosted_history": "note",
    "strict_tool": "map",
    "end_user": "map",
    "metadata": "map",
    "tier": "map",
    "speed": "note",
    "cache_mark": "note",
    "cache_key": "map",
    "cached_content": "refuse",
    "safety_settings": "note",
    "moderation": "refuse",
    "truncation": "note",
    "context_management": "note",
    "include": "note",
    "citations": "note",
    "system_turn": "map",
    "prefill": "note",  # it stays an answer of the assistant: whether the model goes on is its own
    "stored_state": "refuse",
    "background": "refuse",
    "container": "refuse",
    "vendor_terms": "refuse",
    "other": "note",
}


@lru_cache(maxsize=256)
def verdicts_of(traits: Traits) -> Mapping[Feature, Verdict]:
    """The verdicts that differ for a model with these traits."""
    special: dict[Feature, Verdict] = {}
    if not traits.sampling:
        special |= {"temperature": "note", "top_p": "note"}
    if not (traits.sampling and traits.logprobs):
        special["logprobs"] = "refuse"
    if not traits.images:
        special |= {"image_data": "refuse", "image_url": "refuse"}
    if not traits.documents:
        special |= {"document_data": "refuse", "document_url": "refuse"}
    if traits.audio:
        special["audio"] = "map"
    if traits.structured == "none":
        special |= {"schema_output": "refuse", "json_output": "refuse"}
    if traits.thinking == "none":
        special["reasoning"] = "note"
    if not traits.verbosity:
        special["verbosity"] = "note"
    if not traits.openai_extras:
        special |= {"tier": "note", "cache_key": "note"}
    if not has_search(traits):
        special["hosted_search"] = "note"
    return special
