"""The generate_content family: ``POST /v1beta/models/{model}:generateContent``, streams and
counts, and their translation.

The path names the model and says whether the answer is a stream. Source: the types and behaviour of
the official Google Gen AI SDKs. Imported by the registry only.
"""

from adapters.family import ClientSide, Family, UpstreamSide
from adapters.family.headers import base_lines
from adapters.family.rate_headers import no_rate_lines
from adapters.generate_content.client import (
    LIST_MODELS,
    MAX_PAGE,
    OPERATIONS,
    STORED_FIELDS,
    STREAM_ARRAY,
    conversation,
    encode_fault,
    keep_alive,
    model_entry,
    model_list,
    model_name,
    peek,
)
from adapters.generate_content.stream import TAPS
from adapters.generate_content.upstream import (
    LONG_MARKS,
    TIER_HEADER,
    edit_request,
    path,
    read_answer,
    read_models,
)

FAMILY = Family(
    "generate_content",
    ClientSide(
        operations={**OPERATIONS, "stream_array": STREAM_ARRAY},
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
        operations={**OPERATIONS, "list_models": LIST_MODELS},
        path=path,
        request_headers=base_lines,
        edit_request=edit_request,
        read_answer=read_answer,
        stream_tap=lambda public, model, drop_usage, operation: TAPS[operation.framing](
            public, model
        ),
        read_models=read_models,
        models_query=f"?pageSize={MAX_PAGE}",
        tier_header=TIER_HEADER,
        long_marks=LONG_MARKS,
    ),
)
