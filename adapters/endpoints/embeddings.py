"""Embeddings between the forms of OpenAI and of Gemini: texts, dimensions, vectors.

A translation is made for one attempt. Fields that the other form lacks are listed as dropped;
content that it cannot express is a Fault UNSUPPORTED. Facts: the types of the official SDKs.
"""

import base64
from array import array
from collections.abc import Callable, Mapping
from typing import Any

from adapters.bridge import Bridge, Pairing
from adapters.endpoints.usage import input_usage
from adapters.family import Operation, Peek, UpstreamAnswer, UpstreamSide, Vendor
from adapters.family.reply import embedded_fault, loads_answer
from adapters.faults import Condition, Fault, wrong_type
from adapters.json.jsonio import Spans, dumps, loads
from store.values.usage import Usage, token_count

MAX_TEXTS = 2048  # of one request, OpenAI's limit
_CARRIED_TO_GEMINI = frozenset({"model", "input", "dimensions", "encoding_format", "user"})
_CARRIED_TO_OPENAI = frozenset({"model", "content", "outputDimensionality"})
_FIELDS_OF_GEMINI = {"output_dimensionality": "outputDimensionality", "task_type": "taskType"}

Encode = Callable[[list[list[float]], Usage | None], object]


def to_gemini(upstream: UpstreamSide, operation: Operation) -> Callable[..., Pairing]:
    """Return the maker of translations from OpenAI's form. ``operation``: Gemini's batch."""

    def make(spans: Spans, peek: Peek, upstream_model: str) -> Pairing:
        fields = loads(spans.body)
        texts = _texts_of_openai(fields.get("input"), peek.model)
        name = upstream_model.removeprefix("models/")
        common: dict[str, object] = {"model": f"models/{name}"}
        if fields.get("dimensions") is not None:
            common["outputDimensionality"] = fields["dimensions"]
        requests = [{**common, "content": {"parts": [{"text": text}]}} for text in texts]
        as_base64 = fields.get("encoding_format") == "base64"

        def encode(vectors: list[list[float]], usage: Usage | None) -> object:
            tokens = usage.inputs if usage is not None else 0
            return {
                "object": "list",
                "data": [
                    {
                        "object": "embedding",
                        "index": index,
                        "embedding": _packed(vector) if as_base64 else vector,
                    }
                    for index, vector in enumerate(vectors)
                ],
                "model": peek.model,
                "usage": {"prompt_tokens": tokens, "total_tokens": tokens},
            }

        dropped = tuple(sorted(fields.keys() - _CARRIED_TO_GEMINI))
        body = dumps({"requests": requests})
        return _pairing(upstream, operation, body, dropped, _read_gemini(encode))

    return make


def to_openai(upstream: UpstreamSide, operation: Operation) -> Callable[..., Pairing]:
    """Return the maker of translations from Gemini's forms, for one text or many."""

    def make(spans: Spans, peek: Peek, upstream_model: str) -> Pairing:
        fields = loads(spans.body)
        batch = "requests" in fields
        requests = fields["requests"] if batch else [fields]
        if not isinstance(requests, list) or not requests:
            raise wrong_type("requests", "expected an array that is not empty")
        texts, dropped, dimensions = [], set[str](), None
        for index, element in enumerate(requests):
            path = f"requests[{index}]." if batch else ""
            if not isinstance(element, dict):
                raise wrong_type(path.rstrip("."), "expected an object")
            request = {_FIELDS_OF_GEMINI.get(name, name): v for name, v in element.items()}
            texts.append(_text_of_gemini(request.get("content"), f"{path}content", peek.model))
            dropped.update(f"{path}{name}" for name in request.keys() - _CARRIED_TO_OPENAI)
            dimensions = request.get("outputDimensionality", dimensions)
        body: dict[str, object] = {"model": upstream_model, "input": texts}
        if dimensions is not None:
            body["dimensions"] = dimensions

        def encode(vectors: list[list[float]], usage: Usage | None) -> object:
            values: list[Mapping[str, object]] = [{"values": vector} for vector in vectors]
            answer = {"embeddings": values} if batch else {"embedding": values[0]}
            if usage is None:
                return answer
            return {**answer, "usageMetadata": {"promptTokenCount": usage.inputs}}

        read = _read_openai(encode)
        return _pairing(upstream, operation, dumps(body), tuple(sorted(dropped)), read)

    return make


def gemini_usage(answer: Mapping[str, Any]) -> Usage | None:
    """Return the tokens that newer Gemini models report."""
    usage = answer.get("usageMetadata")
    tokens = token_count(usage.get("promptTokenCount")) if isinstance(usage, dict) else None
    return None if tokens is None else Usage(tokens)


def _texts_of_openai(value: object, model: str) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not texts or len(texts) > MAX_TEXTS:
        raise wrong_type("input", f"expected a string or an array of 1 to {MAX_TEXTS} strings")
    if not all(isinstance(text, str) for text in texts):
        raise Fault(Condition.UNSUPPORTED, param="input", model=model)  # token arrays, or pictures
    return texts


def _text_of_gemini(content: object, path: str, model: str) -> str:
    parts = content.get("parts") if isinstance(content, dict) else None
    parts = [parts] if isinstance(parts, dict) else parts
    if not isinstance(parts, list) or not parts:
        raise wrong_type(path, "expected an object with parts")
    texts = [
        part["text"]
        for part in parts
        if isinstance(part, dict) and isinstance(part.get("text"), str)
    ]
    if len(texts) < len(parts):
        raise Fault(Condition.UNSUPPORTED, param=f"{path}.parts", model=model)
    return "\n".join(texts)


def _packed(vector: list[float]) -> str:
    """Return a vector in base64, as little-endian 32-bit floats."""
    return base64.b64encode(array("f", vector).tobytes()).decode()


def _unpacked(value: object) -> list[float]:
    """Return a vector, decoded if the vendor answers in base64. Raises Fault UPSTREAM_INVALID."""
    if isinstance(value, str):
        try:
            return array("f", base64.b64decode(value, validate=True)).tolist()
        except ValueError:
            raise Fault(Condition.UPSTREAM_INVALID) from None
    if not isinstance(value, list) or not all(type(n) in (int, float) for n in value):
        raise Fault(Condition.UPSTREAM_INVALID)
    return value


def _read_gemini(encode: Encode) -> Callable[[bytes], UpstreamAnswer]:
    def read(body: bytes) -> UpstreamAnswer:
        answer = loads_answer(body)
        rows = answer.get("embeddings") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not rows:
            raise embedded_fault(answer)
        vectors = [_unpacked(row.get("values") if isinstance(row, dict) else None) for row in rows]
        usage = gemini_usage(answer)
        reported = answer.get("usageMetadata")
        return UpstreamAnswer(dumps(encode(vectors, usage)), usage, reported, None)

    return read


def _read_openai(encode: Encode) -> Callable[[bytes], UpstreamAnswer]:
    def read(body: bytes) -> UpstreamAnswer:
        answer = loads_answer(body)
        rows = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(rows, list) or not rows or not all(isinstance(r, dict) for r in rows):
            raise embedded_fault(answer)
        rows.sort(key=lambda row: row["index"] if type(row.get("index")) is int else 0)
        vectors = [_unpacked(row.get("embedding")) for row in rows]
        usage = input_usage(answer)
        return UpstreamAnswer(dumps(encode(vectors, usage)), usage, answer.get("usage"), None)

    return read


def _pairing(
    upstream: UpstreamSide,
    operation: Operation,
    body: bytes,
    dropped: tuple[str, ...],
    read: Callable[[bytes], UpstreamAnswer],
) -> Pairing:
    def request_body(spans: Spans, peek: Peek, _: Operation, model: str, vendor: Vendor) -> bytes:
        return body

    def read_answer(answer: bytes, public: str, model: str, _: Operation) -> UpstreamAnswer:
        return read(answer)

    def open_bridge(*_: object) -> Bridge:
        raise AssertionError  # embeddings are never streamed

    return Pairing(
        upstream,
        operation=lambda _, stream: operation,
        request_body=request_body,
        read_answer=read_answer,
        open_bridge=open_bridge,
        translated=True,
        dropped=dropped,
        at_once_bytes=MAX_VECTORS_BYTES,
    )


MAX_VECTORS_BYTES = 1 << 30  # of an answer translated at once; the upstream client bounds it
