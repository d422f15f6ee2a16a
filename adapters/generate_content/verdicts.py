"""What becomes of what requests ask for at an upstream of this family. Imported by this folder's
``__init__``.
"""

from collections.abc import Mapping

from adapters.family.codec import Verdict
from adapters.family.traits import Traits
from adapters.ir.request import Feature

VERDICTS: dict[Feature, Verdict] = {
    "temperature": "map",
    "top_p": "map",
    "top_k": "map",
    "seed": "map",
    "frequency_penalty": "map",
    "presence_penalty": "map",
    # token ids of one vendor's tokenizer, which mean nothing to others
    "logit_bias": "note",
    "stop": "map",
    "n": "map",
    "logprobs": "map",
    "json_output": "map",
    "schema_output": "map",
    "verbosity": "note",
    "reasoning": "map",
    "parallel_tools": "note",
    "output_modalities": "refuse",
    "prediction": "note",
    "image_data": "map",
    "image_url": "map",
    "image_detail": "note",
    "audio": "map",
    "document_data": "map",
    "document_url": "map",
    "text_document": "map",
    "file_ref": "refuse",
    "video": "map",
    "custom_tool": "map",
    "tool_namespace": "map",
    "allowed_tools": "map",
    "hosted_search": "map",
    "hosted_tool": "note",
    "forced_hosted_tool": "refuse",
    "hosted_history": "note",
    "strict_tool": "note",
    "end_user": "note",
    "metadata": "note",
    "tier": "map",
    "speed": "map",
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
    "prefill": "note",
    "stored_state": "refuse",
    "background": "refuse",
    "container": "refuse",
    "vendor_terms": "refuse",
    "other": "note",
}

_SAMPLING: tuple[Feature, ...] = (
    "temperature", "top_p", "top_k", "seed", "frequency_penalty", "presence_penalty",
)  # fmt: skip


def verdicts_of(traits: Traits) -> Mapping[Feature, Verdict]:
    """Those that differ for a model with these traits."""
    found: dict[Feature, Verdict] = {}
    if not traits.images:
        found |= {"image_data": "refuse", "image_url": "refuse", "video": "refuse"}
    if not traits.documents:
        found |= {"document_data": "refuse", "document_url": "refuse"}
    if not traits.audio:
        found["audio"] = "refuse"
    if not traits.sampling:
        found |= dict.fromkeys(_SAMPLING, "note")
    if traits.structured == "none":
        found["schema_output"] = "refuse"
    if not traits.choices:
        found["n"] = "refuse"
    if not traits.logprobs:
        found["logprobs"] = "refuse"
    if traits.thinking == "none":
        found["reasoning"] = "note"
    return found
