"""The generate-content family: ``POST /v1beta/models/{model}:generateContent``, streams and
counts, and their translation.

The path names the model and whether the answer is a stream. Source of its facts: the types and
behaviour of the official Google Gen AI SDKs. Imported by the registry only.
"""

from adapters.family import ClientSide, Family, Operation, UpstreamSide
from adapters.family.codec import ClientCodec, Codecs, UpstreamCodec
from adapters.family.headers import base_lines
from adapters.family.rate_headers import no_rate_lines
from adapters.family.verdicts import verdict_of
from adapters.generate_content.client import (
    COUNT,
    GENERATE,
    LIST_MODELS,
    MAX_PAGE,
    STORED_FIELDS,
    STREAM,
    STREAM_ARRAY,
    conversation,
    encode_fault,
    keep_alive,
    model_entry,
    model_list,
    model_name,
    peek,
)
from adapters.generate_content.decode_answer import ChunkDecoder, decode_answer, decode_count
from adapters.generate_content.decode_request import FIELDS, decode_request
from adapters.generate_content.encode_answer import ChunkEncoder, encode_answer, encode_count
from adapters.generate_content.encode_request import encode_request
from adapters.generate_content.parts import MARK, without_foreign, without_reasoning
from adapters.generate_content.stream import ElementTap, EventTap
from adapters.generate_content.upstream import edit_request, path, read_answer, read_models


def _stream_tap(
    public: str, upstream_model: str, drop_usage: bool, operation: Operation
) -> ElementTap | EventTap:
    """Return the tap of a stream. Usage is part of every stream and never dropped."""
    of_array = operation.framing == "json_array"
    return ElementTap(public, upstream_model) if of_array else EventTap(public, upstream_model)


FAMILY = Family(
    "generate_content",
    ClientSide(
        operations={
            "generate": GENERATE,
            "stream": STREAM,
            "stream_array": STREAM_ARRAY,
            "count": COUNT,
        },
        credentials=("x-goog-api-key", "?key", "authorization"),
        conversation=conversation,
        model_name=model_name,
        peek=peek,
        encode_fault=encode_fault,
        keep_alive=keep_alive,
        model_list=model_list,
        model_entry=model_entry,
        rate_lines=no_rate_lines,
        stored_fields=STORED_FIELDS,
    ),
    UpstreamSide(
        operations={
            "generate": GENERATE,
            "stream": STREAM,
            "count": COUNT,
            "list_models": LIST_MODELS,
        },
        path=path,
        request_headers=base_lines,
        edit_request=edit_request,
        read_answer=read_answer,
        stream_tap=_stream_tap,
        read_models=read_models,
        models_query=f"?pageSize={MAX_PAGE}",
    ),
)

CODECS = Codecs(
    ClientCodec(
        decode_request=decode_request,
        encode_answer=encode_answer,
        open_encoder=ChunkEncoder,
        encode_count=encode_count,
        without_foreign=without_foreign,
        without_reasoning=without_reasoning,
        foreign_mark=MARK,
        fields=FIELDS,
    ),
    UpstreamCodec(
        verdict=verdict_of("generate_content"),
        encode_request=encode_request,
        decode_answer=decode_answer,
        open_decoder=ChunkDecoder,
        decode_count=decode_count,
    ),
)
