"""Verdicts on features of a request at an upstream of another family: one table for all.

The reasons are in docs/conversions.md. Imported by the families and by ``adapters.translate``.
"""

from collections.abc import Callable
from typing import Literal

from adapters.family.traits import Traits
from adapters.ir.request import Feature
from adapters.json.jsonio import Struct

# "map": it is carried; "note": it is left out and listed in ``x-sluice-dropped``; "refuse": without
# it the answer would be wrong (UNSUPPORTED).
Verdict = Literal["map", "note", "refuse"]


class _If(Struct, frozen=True):
    """A verdict that depends on the model: "map" if it has the traits, otherwise ``otherwise``."""

    has: Callable[[Traits], bool]
    otherwise: Verdict


_Cell = Verdict | _If
_SAMPLING = _If(lambda traits: traits.sampling, "note")
_SAMPLING_AND_LOGPROBS = _If(lambda traits: traits.sampling and traits.logprobs, "refuse")
_LOGIT_BIAS = _If(_SAMPLING_AND_LOGPROBS.has, "note")
_LOGPROBS = _If(lambda traits: traits.logprobs, "refuse")
_CHOICES = _If(lambda traits: traits.choices, "refuse")
_STRUCTURED = _If(lambda traits: traits.structured != "none", "refuse")
_THINKING = _If(lambda traits: traits.thinking != "none", "note")
_VERBOSITY = _If(lambda traits: traits.verbosity, "note")
_IMAGES = _If(lambda traits: traits.images, "refuse")
_AUDIO = _If(lambda traits: traits.audio, "refuse")
_DOCUMENTS = _If(lambda traits: traits.documents, "refuse")
_SEARCH = _If(lambda traits: traits.search, "note")
# OpenAI's models can all search the web.
_SEARCH_OR_OPENAI = _If(lambda traits: traits.search or traits.openai_extras, "note")
_ALWAYS_SEARCHES = _If(lambda traits: traits.search, "refuse")
_STRICT_TOOLS = _If(lambda traits: traits.strict_tools, "note")
_OPENAI_EXTRAS = _If(lambda traits: traits.openai_extras, "note")
_PREFILL = _If(lambda traits: traits.prefill, "note")

_FAMILIES = ("chat_completions", "responses", "messages", "generate_content")
# The cells of a row are in the order of _FAMILIES.
_ROWS: dict[Feature, tuple[_Cell, _Cell, _Cell, _Cell]] = {
    "temperature": (_SAMPLING, _SAMPLING, _SAMPLING, _SAMPLING),
    "top_p": (_SAMPLING, _SAMPLING, _SAMPLING, _SAMPLING),
    # servers of chat completions have it under different names
    "top_k": ("note", "note", _SAMPLING, _SAMPLING),
    "seed": ("map", "note", "note", _SAMPLING),
    "frequency_penalty": (_SAMPLING, "note", "note", _SAMPLING),
    "presence_penalty": (_SAMPLING, "note", "note", _SAMPLING),
    # token ids of one vendor's tokenizer, meaningless to others
    "logit_bias": (_LOGIT_BIAS, "note", "note", "note"),
    "stop": ("map", "map", "map", "map"),  # the gateway cuts the text where the vendor does not
    "n": (_CHOICES, "refuse", "refuse", _CHOICES),
    "logprobs": (_SAMPLING_AND_LOGPROBS, _SAMPLING_AND_LOGPROBS, "refuse", _LOGPROBS),
    "json_output": ("map", _STRUCTURED, "map", "map"),
    "schema_output": (_STRUCTURED, _STRUCTURED, _STRUCTURED, _STRUCTURED),
    "verbosity": (_VERBOSITY, _VERBOSITY, "note", "note"),
    "reasoning": (_THINKING, _THINKING, _THINKING, _THINKING),
    "parallel_tools": ("map", "map", "map", "note"),
    "output_modalities": ("refuse", "refuse", "refuse", "refuse"),
    "prediction": ("note", "note", "note", "note"),
    "image_data": (_IMAGES, _IMAGES, _IMAGES, _IMAGES),
    "image_url": (_IMAGES, _IMAGES, _IMAGES, _IMAGES),
    "image_detail": ("map", "map", "note", "note"),
    "audio": (_AUDIO, _AUDIO, "refuse", _AUDIO),
    "document_data": (_DOCUMENTS, _DOCUMENTS, _DOCUMENTS, _DOCUMENTS),
    # chat completions has no field for it, and the gateway fetches nothing
    "document_url": ("refuse", _DOCUMENTS, _DOCUMENTS, _DOCUMENTS),
    "text_document": ("map", "map", "map", "map"),
    "file_ref": ("refuse", "refuse", "refuse", "refuse"),  # belongs to another vendor
    "video": ("refuse", "refuse", "refuse", _IMAGES),
    "custom_tool": ("map", "map", "map", "map"),
    "tool_namespace": ("map", "map", "map", "map"),
    "allowed_tools": ("map", "map", "map", "map"),
    "hosted_search": (_SEARCH, _SEARCH_OR_OPENAI, _SEARCH, "map"),
    "hosted_tool": ("note", "note", "note", "note"),
    # possible only on models that always search; Gemini decides itself
    "forced_search": (_ALWAYS_SEARCHES, "refuse", "refuse", "note"),
    "forced_hosted_tool": ("refuse", "refuse", "refuse", "refuse"),
    "hosted_history": ("note", "note", "note", "note"),
    "strict_tool": ("map", "map", _STRICT_TOOLS, "note"),
    "end_user": ("map", "map", "map", "note"),
    "metadata": ("note", "map", "note", "note"),  # chat completions accepts it only with store
    "tier": (_OPENAI_EXTRAS, _OPENAI_EXTRAS, "map", "map"),
    "speed": (_OPENAI_EXTRAS, "note", "note", "map"),
    "cache_mark": ("note", "note", "map", "note"),
    "cache_key": (_OPENAI_EXTRAS, _OPENAI_EXTRAS, "note", "note"),
    "cached_content": ("refuse", "refuse", "refuse", "refuse"),
    "safety_settings": ("note", "note", "note", "note"),
    "moderation": ("refuse", "refuse", "refuse", "refuse"),
    "truncation": ("note", "note", "note", "note"),
    "context_management": ("note", "note", "note", "note"),
    "include": ("note", "note", "note", "note"),
    "citations": ("note", "note", "note", "note"),
    "system_turn": ("map", "map", "map", "map"),
    # always sent, but the model decides whether it continues from it
    "prefill": ("note", "note", _PREFILL, "note"),
    "stored_state": ("refuse", "refuse", "refuse", "refuse"),
    "background": ("refuse", "refuse", "refuse", "refuse"),
    "container": ("refuse", "refuse", "refuse", "refuse"),
    "vendor_terms": ("refuse", "refuse", "refuse", "refuse"),
    "other": ("note", "note", "note", "note"),
}


def verdict_of(family: str) -> Callable[[Feature, Traits], Verdict]:
    """Return the verdict of a family's upstreams on a feature, for a model with these traits."""
    column = _FAMILIES.index(family)
    cells = {feature: row[column] for feature, row in _ROWS.items()}

    def verdict(feature: Feature, traits: Traits) -> Verdict:
        if traits.refuses and feature in traits.refuses:
            return "note"
        cell = cells[feature]
        if isinstance(cell, str):
            return cell
        return "map" if cell.has(traits) else cell.otherwise

    return verdict
