"""The upstreams' side of the chat completions family. Imported by this folder's ``__init__``."""

from adapters.chat_completions import reply, request
from adapters.chat_completions.kept import made_ids
from adapters.chat_completions.operations import GENERATE
from adapters.chat_completions.stream import ChatTap
from adapters.family import Operation, UpstreamSide
from adapters.family.fields import path
from adapters.family.headers import openai_lines
from adapters.family.listed import by_id
from adapters.openai.lists import LIST_MODELS


def _stream_tap(
    public: str, upstream_model: str, drop_usage: bool, operation: Operation
) -> ChatTap:
    return ChatTap(public, upstream_model, drop_usage)


UPSTREAM = UpstreamSide(
    operations={"generate": GENERATE, "stream": GENERATE, "list_models": LIST_MODELS},
    path=path,
    request_headers=openai_lines,
    edit_request=request.edit,
    read_answer=reply.read,
    stream_tap=_stream_tap,
    read_models=by_id,
    made_ids=made_ids,
    reasoning_beyond_bound=True,
)
