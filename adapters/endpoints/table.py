"""The table of endpoints, a row for each path.

A new endpoint is a row here, and its name in the rows of the vendors that have it
(``adapters/registry.py``). Imported by the entries, the commands and ``explain``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from adapters import chat_completions, generate_content
from adapters.chat_completions.upstream import edit_request as edit_completion
from adapters.chat_completions.upstream import read_usage as read_completion_usage
from adapters.endpoints import requests, usage
from adapters.endpoints.embeddings import gemini_usage, to_gemini, to_openai
from adapters.endpoints.endpoint import Endpoint, read_answer
from adapters.family import Family, LongMark, Operation, Peek, UpstreamSide
from adapters.family.stored import NO_STORED_FIELDS
from adapters.json.jsonio import Spans
from store.values.usage import Usage

_OPENAI = frozenset({"chat_completions", "responses"})
_GEMINI = frozenset({"generate_content"})
_MODEL = "/v1beta/models/{model}:"
_PICTURE_MARKS = (LongMark(b'"b64_json"', re.compile(rb'"b64_json"()'), b"{}"),)


def _dialect(family: Family, peek: Callable[..., Peek]) -> Family:
    """Return a family as the clients of an endpoint use it: its errors, with another reader."""
    client = replace(
        family.client,
        peek=peek,
        model_name=lambda spans, target: peek(spans, Operation(""), target).model,
        conversation=_no_conversation,
        stored_fields=NO_STORED_FIELDS,
        inline_tools=NO_STORED_FIELDS,
    )
    return replace(family, client=client)


def _no_conversation(spans: Spans) -> bytes:
    """Return no name: each call is independent."""
    return b""


def _completion_usage(answer: Mapping[str, Any]) -> Usage | None:
    return read_completion_usage(answer.get("usage"))


def _upstream(family: Family, path: str, **fields: Any) -> UpstreamSide:
    own = {"edit_request": requests.edit_model, "read_answer": read_answer, **fields}
    if path:
        own["path"] = lambda operation, model, target: path
    return replace(family.upstream, reasoning_beyond_bound=False, tier_header="", **own)


def _openai(
    path: str,
    row: str,
    peek: Callable[..., Peek],
    *,
    upstream: Mapping[str, Any] = {},
    **fields: Any,
) -> Endpoint:
    family = chat_completions.FAMILY
    path_there = {"/rerank": "/v1/rerank", "/v2/rerank": "/v1/rerank"}.get(path, path)
    return Endpoint(
        path,
        row=row,
        family=_dialect(family, peek),
        native=_OPENAI,
        upstream=_upstream(family, path_there, **upstream),
        **{"entry": row, **fields},
    )


def _gemini(verb: str, answer_field: str, translations: Mapping[str, Any]) -> Endpoint:
    family = generate_content.FAMILY
    return Endpoint(
        _MODEL + verb,
        row="embeddings",
        entry="embeddings",
        family=_dialect(family, requests.read_embed_content),
        native=_GEMINI,
        upstream=_upstream(family, "", edit_request=requests.edit_embed_content),
        read_usage=gemini_usage,
        answer_field=answer_field,
        translations=translations,
    )


_TO_OPENAI = to_openai(
    _upstream(chat_completions.FAMILY, "/v1/embeddings"),
    Operation("/v1/embeddings", row="embeddings"),
)
_TO_GEMINI = to_gemini(
    _upstream(generate_content.FAMILY, ""), Operation(_MODEL + requests.BATCH, row="embeddings")
)
_PICTURES: dict[str, Any] = {
    "entry": "images",
    "read_usage": usage.image_usage,
    "unreported": usage.pictures_of_answer,
    "answer_field": "data",
    "pictures": True,
    "upstream": {"long_marks": _PICTURE_MARKS},
}
_SEARCH: dict[str, Any] = {
    "read_usage": usage.search_usage,
    "unreported": usage.one_search,
    "answer_field": "results",
}

_ROWS = (
    _openai(
        "/v1/embeddings",
        "embeddings",
        requests.read_embeddings,
        read_usage=usage.input_usage,
        answer_field="data",
        translations={"generate_content": _TO_GEMINI},
    ),
    _gemini("embedContent", "embedding", dict.fromkeys(_OPENAI, _TO_OPENAI)),
    _gemini(requests.BATCH, "embeddings", dict.fromkeys(_OPENAI, _TO_OPENAI)),
    _openai(
        "/v1/completions",
        "completions",
        requests.read_completions,
        read_usage=_completion_usage,
        answer_field="choices",
        output_field="choices",
        asks_usage=True,
        upstream={"edit_request": edit_completion},
    ),
    _openai(
        "/v1/moderations",
        "moderations",
        requests.read_moderations,
        read_usage=usage.input_usage,
        unreported=usage.no_charge,
        answer_field="results",
    ),
    *(
        _openai(path, "rerank", requests.read_rerank, **_SEARCH)
        for path in ("/v1/rerank", "/v2/rerank", "/rerank")
    ),
    _openai("/v1/images/generations", "images", requests.read_images, **_PICTURES),
    _openai("/v1/images/edits", "images", requests.read_images, multipart=True, **_PICTURES),
    *(
        _openai(
            path,
            "transcriptions",
            requests.read_sound,
            entry="audio",
            read_usage=usage.transcript_usage,
            unreported=usage.uses_of_request,
            output_field="text",
            text=True,
            multipart=True,
            json=False,
            sound=True,
        )
        for path in ("/v1/audio/transcriptions", "/v1/audio/translations")
    ),
    _openai(
        "/v1/audio/speech",
        "speech",
        requests.read_speech,
        entry="audio",
        framing="bytes",
        read_usage=usage.speech_usage,
        unreported=usage.uses_of_request,
    ),
)

ENDPOINTS: Mapping[str, Endpoint] = {row.endpoint: row for row in _ROWS}
"""All rows by path; a path that names a model has the placeholder."""

VERBS: Mapping[str, Endpoint] = {
    row.endpoint.removeprefix(_MODEL): row for row in _ROWS if row.endpoint.startswith(_MODEL)
}
"""Rows whose path names the model, by the verb after it."""

_NAMED: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = tuple(
    (re.compile(pattern), frozenset(rows))
    for pattern, rows in (
        (r"rerank", {"rerank"}),
        (r"embed|^(?:.*/)?(?:bge|e5|gte|voyage)-", {"embeddings"}),
        (r"moderation", {"moderations"}),
        (r"whisper|transcri", {"transcriptions"}),
        (r"(?:^|[-/])tts|-tts", {"speech"}),
        (r"dall-e|gpt-image|imagen|stable-diffusion|flux", {"images"}),
    )
)
_CHAT_ROWS = frozenset({"", "completions"})


def rows_of_name(name: str) -> frozenset[str]:
    """Return the rows that a model's name suggests, "" for chat. A guess, only for lists."""
    return next((rows for pattern, rows in _NAMED if pattern.search(name.lower())), _CHAT_ROWS)
