"""The chat completions family: ``POST /v1/chat/completions``, and its translation.

Source: the types and behaviour of the official OpenAI SDKs. Imported by the registry only.
"""

from adapters.chat_completions.client import (
    GENERATE,
    STORED_FIELDS,
    conversation,
    encode_fault,
    peek,
)
from adapters.chat_completions.stream import ChatTap
from adapters.chat_completions.upstream import edit_request, issued_ids, read_answer
from adapters.family import ClientSide, Family, UpstreamSide
from adapters.family.headers import openai_lines, path
from adapters.family.rate_headers import openai_rate_lines
from adapters.family.reading import model_name
from adapters.family.reply import read_models
from adapters.openai import LIST_MODELS, keep_alive, model_entry, model_list

FAMILY = Family(
    "chat_completions",
    ClientSide(
        operations={"generate": GENERATE},
        credentials=("authorization",),
        answer_headers=frozenset({"openai-processing-ms", "openai-version"}),
        conversation=conversation,
        model_name=model_name,
        peek=peek,
        encode_fault=encode_fault,
        keep_alive=keep_alive,
        model_list=model_list,
        model_entry=model_entry,
        rate_lines=openai_rate_lines,
        stored_fields=STORED_FIELDS,
    ),
    UpstreamSide(
        operations={"generate": GENERATE, "stream": GENERATE, "list_models": LIST_MODELS},
        path=path,
        request_headers=openai_lines,
        edit_request=edit_request,
        read_answer=read_answer,
        stream_tap=lambda public, model, drop_usage, operation: ChatTap(public, model, drop_usage),
        read_models=read_models,
        issued_ids=issued_ids,
        reasoning_beyond_bound=True,
    ),
)
