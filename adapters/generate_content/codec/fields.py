"""Every field of a client's request and of its configuration, and what it asks for.

Source: the request types of the official Google SDK 3.6, those of Vertex included. Imported by this
folder's ``__init__`` and by ``decode_request``.
"""

from collections.abc import Mapping

from adapters.family.codec import Asking

BODY_FIELDS: Mapping[str, Asking] = {
    **dict.fromkeys(("model", "contents", "systemInstruction", "generationConfig"), ""),
    **dict.fromkeys(("tools", "toolConfig"), ""),
    "cachedContent": "cached_content",
    "continuationToken": "stored_state",
    "generationOutputConfig": "stored_state",
    "labels": "metadata",
    "modelArmorConfig": "moderation",
    "safetySettings": "moderation",
    "serviceTier": "tier",
    "store": "other",
}
CONFIG_FIELDS: Mapping[str, Asking] = {
    "maxOutputTokens": "",
    "audioTimestamp": "output_modalities",
    "audioTranscriptionConfig": "output_modalities",
    "candidateCount": "n",
    "enableAffectiveDialog": "other",
    "enableEnhancedCivicAnswers": "other",
    "frequencyPenalty": "frequency_penalty",
    "imageConfig": "output_modalities",
    "logprobs": "logprobs",
    "mediaResolution": "image_detail",
    "modelSelectionConfig": "other",
    "presencePenalty": "presence_penalty",
    "responseFormat": "output_modalities",
    "responseJsonSchema": "schema_output",
    "responseLogprobs": "logprobs",
    "responseMimeType": "json_output",
    "responseModalities": "output_modalities",
    "responseSchema": "schema_output",
    "routingConfig": "other",
    "seed": "seed",
    "speechConfig": "output_modalities",
    "stopSequences": "stop",
    "temperature": "temperature",
    "thinkingConfig": "reasoning",
    "topK": "top_k",
    "topP": "top_p",
    "translationConfig": "output_modalities",
}
FIELDS: Mapping[str, Asking] = {
    **BODY_FIELDS,
    **{f"generationConfig.{name}": asking for name, asking in CONFIG_FIELDS.items()},
}
