"""The responses family: ``POST /v1/responses``, counts, compaction, stored responses, translation.

Source: the types and behaviour of the official OpenAI SDKs and of Codex. Imported by the registry.
"""

from adapters.family import ClientSide, Family, UpstreamSide
from adapters.family.headers import openai_lines
from adapters.family.rate_headers import openai_rate_lines
from adapters.family.reading import model_name
from adapters.family.reply import read_models
from adapters.openai import LIST_MODELS, model_entry, model_list
from adapters.responses.client import (
    INLINE_TOOLS,
    OPERATIONS,
    STORED_FIELDS,
    conversation,
    encode_fault,
    keep_alive,
    peek,
)
from adapters.responses.stream import ResponsesTap
from adapters.responses.upstream import LONG_MARKS, edit_request, issued_ids, path, read_answer

FAMILY = Family(
    "responses",
    ClientSide(
        operations=OPERATIONS,
        credentials=("authorization",),
        answer_headers=frozenset({"openai-processing-ms", "openai-version"}),
        conversation=conversation,
        model_name=model_name,
        peek=peek,
        stored_fields=STORED_FIELDS,
        inline_tools=INLINE_TOOLS,
        encode_fault=encode_fault,
        keep_alive=keep_alive,
        model_list=model_list,
        model_entry=model_entry,
        rate_lines=openai_rate_lines,
    ),
    UpstreamSide(
        operations={**OPERATIONS, "stream": OPERATIONS["generate"], "list_models": LIST_MODELS},
        path=path,
        request_headers=openai_lines,
        edit_request=edit_request,
        read_answer=read_answer,
        # The public name of a stored response's model is unknown, so the upstream's name stays.
        stream_tap=lambda public, model, drop_usage, operation: ResponsesTap(
            model if operation.stored else public, model
        ),
        read_models=read_models,
        issued_ids=issued_ids,
        long_marks=LONG_MARKS,
    ),
)
