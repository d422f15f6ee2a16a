"""The vendor's endpoints beside chat: strict checks by the SDKs' types, and their answers.

Each row is a path. The directives of the script are in the model's name or in the request's text.
"""

from __future__ import annotations

import base64
import re
from array import array
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from email.parser import BytesParser
from email.policy import HTTP
from typing import Any, get_type_hints

from openai.types import EmbeddingCreateParams, ModerationCreateParams
from openai.types.audio import SpeechCreateParams, TranslationCreateParams
from openai.types.audio.transcription_create_params import TranscriptionCreateParamsBase
from openai.types.completion_create_params import CompletionCreateParamsBase
from openai.types.image_edit_params import ImageEditParamsBase
from openai.types.image_generate_params import ImageGenerateParamsBase

from demo.family import ModelRequest, Route, encode_json
from tests.vendor.chat_completions import ChatCompletions
from tests.vendor.compose import STREAM_TYPE, Answer, Composer, plain_answer
from tests.vendor.directives import read_script
from tests.vendor.family import Refusal, bearer
from tests.vendor.fields import decode_object
from tests.vendor.generate_content import GenerateContent
from tests.vendor.http1 import Request
from tests.vendor.log import Entry
from tests.vendor.sdk_types import RequestType

PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(64)).decode()
SOUND = b"ID3\x04" + bytes(range(256)) * 16
MEBIBYTE = 1 << 20
TOKENS = 8  # for every input
_GEMINI = re.compile(r"/v1beta/models/(.+):(embedContent|batchEmbedContents)")
_SIZES = re.compile(r"mib-(\d+)")  # in a model's name: the size of its speech

Body = dict[str, Any]
Made = tuple[str, Any]  # content type, value or bytes or events


@dataclass(frozen=True, slots=True)
class Row:
    """An endpoint: its answer, its check, and the fields of a body that is a form."""

    answer: Callable[[Body], Made]
    kind: RequestType | None = None
    fields: frozenset[str] = frozenset()  # for a form
    needs: tuple[str, ...] = ("model",)


def _fields(kind: Any) -> frozenset[str]:
    names = {*get_type_hints(kind), "stream"}
    return frozenset(names | {f"{name}[]" for name in names})


def _vector(size: int, seed: int) -> list[float]:
    return [((seed + place) % 7) / 8 for place in range(size)]


def embeddings(body: Body) -> Made:
    texts = body["input"] if isinstance(body["input"], list) else [body["input"]]
    texts = texts if texts and not isinstance(texts[0], int) else [texts]
    vectors = [_vector(body.get("dimensions") or 4, index) for index in range(len(texts))]
    if body.get("encoding_format") == "base64":
        shown: list[Any] = [base64.b64encode(array("f", v).tobytes()).decode() for v in vectors]
    else:
        shown = vectors
    data = [{"object": "embedding", "index": i, "embedding": v} for i, v in enumerate(shown)]
    usage = {"prompt_tokens": TOKENS, "total_tokens": TOKENS}
    return _json({"object": "list", "data": data, "model": body["model"]}, body, usage)


def completions(body: Body) -> Made:
    usage = {"prompt_tokens": TOKENS, "completion_tokens": 4, "total_tokens": TOKENS + 4}
    head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": body["model"]}
    if not body.get("stream"):
        choice = {"index": 0, "text": "once upon a time", "finish_reason": "stop", "logprobs": None}
        return _json({**head, "choices": [choice]}, body, usage)

    def events() -> Iterator[bytes]:
        for word, finish in (("once ", None), ("upon ", None), ("a time", "stop")):
            choice = {"index": 0, "text": word, "finish_reason": finish, "logprobs": None}
            yield _event({**head, "choices": [choice]})
        if (body.get("stream_options") or {}).get("include_usage") and not _silent(body):
            yield _event({**head, "choices": [], "usage": usage})
        yield b"data: [DONE]\n\n"

    return STREAM_TYPE, events()


def moderations(body: Body) -> Made:
    result = {"flagged": False, "categories": {}, "category_scores": {}}
    answer = {"id": "modr-1", "model": body.get("model", ""), "results": [result]}
    return "application/json", {
        **answer,
        "results": [{**result, "category_applied_input_types": {}}],
    }


def rerank(body: Body) -> Made:
    results = [{"index": i, "relevance_score": 0.9 - i / 10} for i in range(len(body["documents"]))]
    answer: Body = {"id": "rr-1", "results": results[: body.get("top_n") or len(results)]}
    if not _silent(body):
        answer["meta"] = {"api_version": {"version": "2"}, "billed_units": {"search_units": 1}}
    return "application/json", answer


def jina_rerank(body: Body) -> Made:
    _, answer = rerank(body)
    answer.pop("meta", None)
    return _json({**answer, "model": body["model"]}, body, {"total_tokens": TOKENS})


def images(body: Body, kind: str = "image_generation") -> Made:
    usage = {
        **{"input_tokens": TOKENS, "output_tokens": 100, "total_tokens": TOKENS + 100},
        "input_tokens_details": {"text_tokens": TOKENS, "image_tokens": 0},
    }
    count = int(body.get("n") or 1)
    if body.get("stream") not in (True, "true"):
        answer = {"created": 1, "data": [{"b64_json": PIXEL} for _ in range(count)]}
        return _json(answer, body, usage)

    def events() -> Iterator[bytes]:
        shown = {"b64_json": PIXEL, "created_at": 1, "size": "1024x1024", "quality": "low"}
        shown |= {"background": "opaque", "output_format": "png"}
        partial = {"type": f"{kind}.partial_image", "partial_image_index": 0, **shown}
        yield _event(partial, partial["type"])
        last = {"type": f"{kind}.completed", **shown, **({} if _silent(body) else {"usage": usage})}
        yield _event(last, last["type"])

    return STREAM_TYPE, events()


def edits(body: Body) -> Made:
    return images(body, "image_edit")


def speech(body: Body) -> Made:
    if body.get("stream_format") != "sse":
        size = _SIZES.search(body["model"])
        sound = [SOUND] if size is None else [SOUND[:4]] + [b"s" * MEBIBYTE] * int(size[1])
        return "audio/mpeg", sound
    usage = {"input_tokens": TOKENS, "output_tokens": 20, "total_tokens": TOKENS + 20}
    delta = {"type": "speech.audio.delta", "audio": base64.b64encode(SOUND).decode()}
    return STREAM_TYPE, iter([_event(delta), _event({"type": "speech.audio.done", "usage": usage})])


def transcripts(body: Body) -> Made:
    words = f"heard {len(body['file'])} bytes"
    form = body.get("response_format") or "json"
    if body.get("stream") == "true":
        done = {"type": "transcript.text.done", "text": words}
        if not _silent(body):
            done["usage"] = _heard()
        delta = {"type": "transcript.text.delta", "delta": words}
        return STREAM_TYPE, iter([_event(delta), _event(done)])
    if form in ("text", "srt", "vtt"):
        return "text/plain; charset=utf-8", [f"{words}\n".encode()]
    answer: Body = {"text": words}
    if form == "verbose_json":
        answer |= {"task": "transcribe", "language": "english", "duration": 2.5, "segments": []}
        return "application/json", answer
    return _json(answer, body, _heard())


def _heard() -> Body:
    return {
        **{"type": "tokens", "input_tokens": 14, "output_tokens": 45, "total_tokens": 59},
        "input_token_details": {"text_tokens": 4, "audio_tokens": 10},
    }


def translations(body: Body) -> Made:
    kind, answer = transcripts(body)
    if isinstance(answer, dict):
        answer.pop("usage", None)
    return kind, answer


def embed_content(body: Body) -> Made:
    return "application/json", {"embedding": {"values": _vector(_size(body), 0)}}


def batch_embed_contents(body: Body) -> Made:
    rows = [{"values": _vector(_size(one), i)} for i, one in enumerate(body["requests"])]
    return "application/json", {"embeddings": rows}


def _size(body: Body) -> int:
    return int(body.get("outputDimensionality") or 4)


def _silent(body: Body) -> bool:
    """Return True if the model reports no usage."""
    return "silent" in str(body.get("model"))


def _json(answer: Body, body: Body, usage: Body) -> Made:
    return "application/json", answer if _silent(body) else {**answer, "usage": usage}


def _event(data: Body, name: str = "") -> bytes:
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + encode_json(data) + b"\n\n"


_RERANK = ("model", "query", "documents")
ROWS: Mapping[str, Row] = {
    "/v1/embeddings": Row(embeddings, RequestType(EmbeddingCreateParams)),
    "/v1/completions": Row(
        completions, RequestType(CompletionCreateParamsBase, extra=("stream",), forbid=True)
    ),
    "/v1/moderations": Row(moderations, RequestType(ModerationCreateParams), needs=()),
    "/v1/rerank": Row(jina_rerank, needs=_RERANK),
    "/v2/rerank": Row(rerank, needs=_RERANK),
    "/v1/images/generations": Row(images, RequestType(ImageGenerateParamsBase, extra=("stream",))),
    "/v1/images/edits": Row(edits, fields=_fields(ImageEditParamsBase)),
    "/v1/audio/speech": Row(speech, RequestType(SpeechCreateParams)),
    "/v1/audio/transcriptions": Row(transcripts, fields=_fields(TranscriptionCreateParamsBase)),
    "/v1/audio/translations": Row(translations, fields=_fields(TranslationCreateParams)),
}
_VERBS = {"embedContent": embed_content, "batchEmbedContents": batch_embed_contents}


@dataclass(frozen=True, slots=True)
class EndpointComposer(Composer):
    """A composer whose usual answer is the row's."""

    made: Made = ("", None)

    def _usual(self) -> Answer:
        kind, value = self.made
        if isinstance(value, dict):
            return self._plain(encode_json(value))
        if isinstance(value, list):
            body = b"".join(value)
            return replace(plain_answer(200, kind, b""), steps=iter(value), length=len(body))
        return self._stream(value)


def answer(request: Request, entry: Entry, request_id: str) -> Answer | None:
    """Return the answer of an endpoint beside chat; None for any other path. Raises Refusal."""
    gemini = _GEMINI.fullmatch(request.path)
    row = Row(_VERBS[gemini[2]], needs=()) if gemini else ROWS.get(request.path)
    if row is None:
        return None
    if request.method != "POST":
        raise Refusal(f"Method {request.method} is not allowed on this path.", status=405)
    family = GenerateContent() if gemini else ChatCompletions()
    entry.family = family.name
    if gemini:
        family.admit(request.headers)
    elif not bearer(request.headers):
        raise Refusal("Incorrect API key provided.", kind="plain", status=401)
    body = _form(request) if row.fields else _object(request, family)
    for name in body.keys() - row.fields if row.fields else ():
        raise Refusal("Extra inputs are not permitted", (name,))
    for name in row.needs:
        if name not in body:
            raise Refusal("required", (name,), "missing")
    if row.kind is not None:
        row.kind.check(body)
    model = gemini[1] if gemini else str(body.get("model", ""))
    if gemini and any(m not in (None, f"models/{model}") for m in _names(body)):
        raise Refusal("the model of the path", ("model",))
    stream = body.get("stream") in (True, "true")
    entry.model, entry.stream = model, stream
    text = body.get("input") or body.get("prompt") or body.get("query") or ""
    script = read_script(text if isinstance(text, str) else "", model)
    asked = ModelRequest(model, "", TOKENS, stream=stream, body=body)
    given = (family, Route("generate"), asked, script, None, request_id)
    return EndpointComposer(*given, made=row.answer(body)).compose()


def _names(body: Body) -> list[object]:
    return [one.get("model") for one in (body, *body.get("requests", ()))]


def _object(request: Request, family: Any) -> Body:
    family.check_content_type(request.headers.get("content-type", ""))
    return decode_object(request.body)


def _form(request: Request) -> Body:
    """Return the parts of a form: texts, and files as bytes. Raises Refusal for any other body."""
    kind = request.headers.get("content-type", "")
    if not kind.startswith("multipart/form-data; boundary="):
        raise Refusal("The content type must be multipart/form-data.", kind="plain")
    if not request.body.rstrip(b"\r\n").endswith(b"--"):
        raise Refusal("The form has no end.", kind="plain")
    head = f"content-type: {kind}\r\n\r\n".encode()
    body: Body = {}
    for part in BytesParser(policy=HTTP).parsebytes(head + request.body).iter_parts():
        name = part.get_param("name", header="content-disposition")
        data = part.get_payload(decode=True)
        assert isinstance(data, bytes)
        body[str(name)] = data if part.get_filename() else data.decode()
    return body
