"""The messages of the generate-content vendor, and the strict reading of their JSON.

This module knows which fields a message has, and proto3 JSON (both spellings of a name, numbers as
strings, both base64 alphabets). generate_request.py knows what the values mean. Source: proto3
JSON mapping; fields of the official types of the google-genai SDK that its request builder passes
on for the public API. Pure.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from typing import Any

from demo.generate_content import snake_case
from tests.vendor.family import Path, Refusal, written

DEPTH_MAX = 100
VALUE_SHOWN_CHARACTERS = 80
PACKAGE = "type.googleapis.com/google.ai.generativelanguage.v1beta"
INTEGER = re.compile(r"-?[0-9]{1,19}")
NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?")
URL_SAFE = str.maketrans("-_", "+/")

ENUM_WORDS = """
Type: STRING NUMBER INTEGER BOOLEAN ARRAY OBJECT NULL
Mode: MODE_UNSPECIFIED AUTO ANY NONE VALIDATED
ThinkingLevel: THINKING_LEVEL_UNSPECIFIED MINIMAL LOW MEDIUM HIGH XHIGH
Modality: MODALITY_UNSPECIFIED TEXT IMAGE AUDIO VIDEO
MediaResolution: MEDIA_RESOLUTION_UNSPECIFIED MEDIA_RESOLUTION_LOW MEDIA_RESOLUTION_MEDIUM
    MEDIA_RESOLUTION_HIGH MEDIA_RESOLUTION_ULTRA_HIGH
HarmCategory: HARM_CATEGORY_UNSPECIFIED HARM_CATEGORY_HARASSMENT HARM_CATEGORY_HATE_SPEECH
    HARM_CATEGORY_SEXUALLY_EXPLICIT HARM_CATEGORY_DANGEROUS_CONTENT
    HARM_CATEGORY_CIVIC_INTEGRITY
HarmBlockThreshold: HARM_BLOCK_THRESHOLD_UNSPECIFIED BLOCK_LOW_AND_ABOVE BLOCK_MEDIUM_AND_ABOVE
    BLOCK_ONLY_HIGH BLOCK_NONE OFF
Behavior: UNSPECIFIED BLOCKING NON_BLOCKING
Scheduling: SCHEDULING_UNSPECIFIED SILENT WHEN_IDLE INTERRUPT
Language: LANGUAGE_UNSPECIFIED PYTHON
Outcome: OUTCOME_UNSPECIFIED OUTCOME_OK OUTCOME_FAILED OUTCOME_DEADLINE_EXCEEDED
ServiceTier: UNSPECIFIED FLEX STANDARD PRIORITY
"""
# The kind of a field comes before the names of the fields. A kind is a scalar, an enum, a message,
# "struct" (any JSON object) or "any"; with a trailing "*" a list, with "map:" before it an object
# of such values.
MESSAGE_FIELDS = """
CountTokensRequest: string model; Content* contents; GenerateContentRequest
    generateContentRequest
GenerateContentRequest: string model cachedContent continuationToken; Content* contents; Content
    systemInstruction; Tool* tools; ToolConfig toolConfig; SafetySetting* safetySettings;
    GenerationConfig generationConfig; map:string labels; ServiceTier serviceTier; bool store
Content: string role; Part* parts
Part: string text; Blob inlineData; FileData fileData; FunctionCall functionCall;
    FunctionResponse functionResponse; ExecutableCode executableCode; CodeExecutionResult
    codeExecutionResult; struct toolCall toolResponse videoMetadata partMetadata; bool thought;
    bytes thoughtSignature; PartMediaResolution mediaResolution
Blob: string mimeType displayName; bytes data
FileData: string mimeType fileUri displayName
FunctionCall: string id name; struct args
FunctionResponse: string id name; struct response; FunctionResponsePart* parts; bool
    willContinue; Scheduling scheduling
FunctionResponsePart: Blob inlineData; FileData fileData
ExecutableCode: string id code; Language language
CodeExecutionResult: string id output; Outcome outcome
PartMediaResolution: MediaResolution level; int32 numTokens
Tool: FunctionDeclaration* functionDeclarations; struct googleSearch googleSearchRetrieval
    codeExecution urlContext computerUse googleMaps fileSearch; struct* mcpServers
FunctionDeclaration: string name description; Schema parameters response; any
    parametersJsonSchema responseJsonSchema; Behavior behavior
Schema: Type type; string format title description pattern; bool nullable; string* enum required
    propertyOrdering; Schema items; int64 minItems maxItems minProperties maxProperties
    minLength maxLength; map:Schema properties; any example default; Schema* anyOf; float
    minimum maximum
ToolConfig: FunctionCallingConfig functionCallingConfig; struct retrievalConfig; bool
    includeServerSideToolInvocations
FunctionCallingConfig: Mode mode; string* allowedFunctionNames
SafetySetting: HarmCategory category; HarmBlockThreshold threshold
GenerationConfig: float temperature topP presencePenalty frequencyPenalty; int32 topK seed
    maxOutputTokens candidateCount logprobs; string* stopSequences; string responseMimeType;
    Schema responseSchema; any responseJsonSchema responseFormat; Modality* responseModalities;
    bool responseLogprobs enableEnhancedCivicAnswers; ThinkingConfig thinkingConfig;
    MediaResolution mediaResolution; struct speechConfig imageConfig translationConfig
    audioTranscriptionConfig
ThinkingConfig: bool includeThoughts; int32 thinkingBudget; ThinkingLevel thinkingLevel
"""


def _entries(text: str) -> dict[str, str]:
    """Return the text after each name; continuation lines are indented."""
    lines = text.strip().replace("\n    ", " ").splitlines()
    return dict(line.split(": ", 1) for line in lines)


def _fields(text: str) -> dict[str, str]:
    groups = (group.split() for group in text.split(";"))
    return {name: kind for kind, *names in groups for name in names}


ENUMS = {name: frozenset(words.split()) for name, words in _entries(ENUM_WORDS).items()}
MESSAGES = {name: _fields(text) for name, text in _entries(MESSAGE_FIELDS).items()}
NAMES = {
    message: {spelling: name for name in fields for spelling in (name, snake_case(name))}
    for message, fields in MESSAGES.items()
}


def read_message(message: str, value: Any, path: Path = ()) -> dict[str, Any]:
    """Return the message by the camelCase names of its fields; null fields are left out.

    Enums are upper case, numbers numbers, bytes decoded. Raises Refusal of the kind "type".
    """
    if not isinstance(value, dict):
        raise _invalid(path, f"{PACKAGE}.{message}", value)
    fields_read: dict[str, Any] = {}
    for spelling, inner in value.items():
        name = NAMES[message].get(spelling)
        if name is None:
            raise _unknown(spelling, path, "Cannot find field.")
        if name in fields_read:
            raise _unknown(spelling, path, "The field is already set.")
        if inner is not None:
            fields_read[name] = _read_field(
                MESSAGES[message][name], inner, (*path, snake_case(name))
            )
    return fields_read


def _read_field(kind: str, value: Any, path: Path) -> Any:
    if len(path) > DEPTH_MAX:
        problem = f"Message too deep. Max recursion depth reached for key '{path[-1]}'"
        raise Refusal(problem, path[:1], "type")
    if kind.endswith("*"):
        # The vendor accepts a single value for a list of one.
        values = value if isinstance(value, list) else [value]
        return [_read_one(kind[:-1], inner, (*path, at)) for at, inner in enumerate(values)]
    if kind.startswith("map:"):
        if not isinstance(value, dict):
            raise _invalid(path, "Map", value)
        return {
            key: _read_one(kind.removeprefix("map:"), inner, (*path, at, "value"))
            for at, (key, inner) in enumerate(value.items())
        }
    return _read_one(kind, value, path)


def _read_one(kind: str, value: Any, path: Path) -> Any:
    if kind == "any":
        return value
    if isinstance(value, list):
        problem = "Proto field is not repeating, cannot start list."
        raise _unknown(str(path[-1]), path[:-1], problem)
    if kind in MESSAGES:
        return read_message(kind, value, path)
    if kind in ENUMS:
        if not isinstance(value, str) or value.upper() not in ENUMS[kind]:
            raise _invalid(path, f"{PACKAGE}.{kind}", value)
        return value.upper()
    if kind == "struct":
        if not isinstance(value, dict):
            raise _invalid(path, "type.googleapis.com/google.protobuf.Struct", value)
        return value
    return _read_scalar(kind, value, path)


def _read_scalar(kind: str, value: Any, path: Path) -> Any:
    if kind == "bytes":
        return _read_bytes(value, path)
    if kind == "bool":
        fits = isinstance(value, bool)
    elif kind == "string":
        fits = isinstance(value, str)
    else:
        value, fits = _read_number(kind, value)
    if not fits:
        raise _invalid(path, f"TYPE_{kind.upper()}", value)
    return value


def _read_number(kind: str, value: Any) -> tuple[Any, bool]:
    """Return the number, and whether it is of this kind."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return value, False
    if kind == "float":
        if isinstance(value, str) and not NUMBER.fullmatch(value):
            return value, False
        # A number beyond the largest float is read as infinite.
        fits = not isinstance(value, int) or abs(value) < 1 << 1023
        return (float(value), math.isfinite(float(value))) if fits else (value, False)
    if isinstance(value, str):
        if not INTEGER.fullmatch(value):
            return value, False
        value = int(value)
    if value != value // 1:
        return value, False
    bound = 2**31 if kind == "int32" else 2**63
    return int(value), -bound <= value < bound


def _read_bytes(value: Any, path: Path) -> bytes:
    if not isinstance(value, str):
        raise _invalid(path, "TYPE_BYTES", value)
    text = value.translate(URL_SAFE).rstrip("=")
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        problem = f"Invalid value at '{written(path)}' (TYPE_BYTES), Base64 decoding failed for "
        raise Refusal(problem + _shown(value), path, "type") from error


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= VALUE_SHOWN_CHARACTERS else text[:VALUE_SHOWN_CHARACTERS] + "…"


def _invalid(path: Path, kind: str, value: Any) -> Refusal:
    return Refusal(f"Invalid value at '{written(path)}' ({kind}), {_shown(value)}", path, "type")


def _unknown(name: str, path: Path, why: str) -> Refusal:
    at = f" at '{written(path)}'" if path else ""
    problem = f'Invalid JSON payload received. Unknown name "{name}"{at}: {why}'
    return Refusal(problem, path, "type")
