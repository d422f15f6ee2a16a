"""What becomes of what requests ask for, at upstreams of the messages family.

Imported by the codec's ``__init__`` and by ``encode_request``.
"""

from collections.abc import Mapping

from adapters.family.codec import Verdict
from adapters.family.traits import Traits
from adapters.ir.request import Feature

VERDICTS: dict[Feature, Verdict] = {
    "temperature": "map",
    "top_p": "map",
    "top_k": "map",
    "seed": "note",
    "frequency_penalty": "note",
    "presence_penalty": "note",
    # token ids of one vendor's tokenizer, which mean nothing to others
    "logit_bias": "note",
    "stop": "map",
    "n": "refuse",
    "logprobs": "refuse",
    "json_output": "map",
    "schema_output": "map",
    "verbosity": "note",
    "reasoning": "map",
    "parallel_tools": "map",
    "output_modalities": "refuse",
    "prediction": "note",
    "image_data": "map",
    "image_url": "map",
    "image_detail": "note",
    "audio": "refuse",
    "document_data": "map",
    "document_url": "map",
    "text_document": "map",
    "file_ref": "refuse",  # another vendor's
    "video": "refuse",
    "custom_tool": "map",
    "tool_namespace": "map",
    "allowed_tools": "map",
    "hosted_search": "note",
    "hosted_tool": "note",
    "forced_hosted_tool": "refuse",
    "hosted_history": "note",
    "strict_tool": "note",
    "end_user": "map",
    "metadata": "note",
    "tier": "map",
    "speed": "note",
    "cache_mark": "map",
    "cache_key": "note",
    "cached_content": "refuse",
    "safety_settings": "note",
    "moderation": "refuse",
    "truncation": "note",
    "context_management": "note",
    "include": "note",
    "citations": "note",
    "system_turn": "map",
    "prefill": "map",
    "stored_state": "refuse",
    "background": "refuse",
    "container": "refuse",
    "vendor_terms": "refuse",
    "other": "note",
}


def verdicts_of(traits: Traits) -> Mapping[Feature, Verdict]:
    """What differs for a model with these traits."""
    found: dict[Feature, Verdict] = {}
    if not traits.images:
        found["image_data"] = found["image_url"] = "refuse"
    if not traits.documents:
        found["document_data"] = found["document_url"] = "refuse"
    if not traits.sampling:
        found["temperature"] = found["top_p"] = found["top_k"] = "note"
    if traits.structured == "none":
        found["schema_output"] = "refuse"
    if traits.strict_tools:
        found["strict_tool"] = "map"
    if traits.search:
        found["hosted_search"] = "map"
    if traits.thinking == "none":
        found["reasoning"] = "note"
    if not traits.prefill:
        found["prefill"] = "note"
    return found
