"""The messages family: ``POST /v1/messages``, token counts, and their translation.

Source: the types and behaviour of the official Anthropic SDKs. Imported by the registry only.
"""

from adapters.family import ClientSide, Family, UpstreamSide
from adapters.family.headers import path
from adapters.family.rate_headers import anthropic_rate_lines
from adapters.family.reading import model_name
from adapters.family.reply import read_models
from adapters.messages.client import (
    INLINE_TOOLS,
    LIST_MODELS,
    MAX_PAGE,
    OPERATIONS,
    STORED_FIELDS,
    conversation,
    encode_fault,
    keep_alive,
    model_entry,
    model_list,
    peek,
)
from adapters.messages.stream import MessagesTap
from adapters.messages.upstream import edit_request, issued_ids, read_answer, request_headers

FAMILY = Family(
    "messages",
    ClientSide(
        operations=OPERATIONS,
        credentials=("authorization", "x-api-key"),
        conversation=conversation,
        model_name=model_name,
        peek=peek,
        encode_fault=encode_fault,
        keep_alive=keep_alive,
        model_list=model_list,
        model_entry=model_entry,
        rate_lines=anthropic_rate_lines,
        stored_fields=STORED_FIELDS,
        inline_tools=INLINE_TOOLS,
    ),
    UpstreamSide(
        operations={**OPERATIONS, "stream": OPERATIONS["generate"], "list_models": LIST_MODELS},
        path=path,
        request_headers=request_headers,
        edit_request=edit_request,
        read_answer=read_answer,
        stream_tap=lambda public, model, drop_usage, operation: MessagesTap(public, model),
        read_models=read_models,
        issued_ids=issued_ids,
        models_query=f"?limit={MAX_PAGE}",
    ),
)
