"""The upstreams' side of the responses family. Imported by this folder's ``__init__``."""

from adapters.family import Operation, UpstreamSide
from adapters.family.fields import rename_model
from adapters.family.headers import openai_lines
from adapters.family.listed import by_id
from adapters.openai.lists import LIST_MODELS
from adapters.responses import reply, request
from adapters.responses.kept import made_ids
from adapters.responses.operations import OPERATIONS
from adapters.responses.stream import ResponsesTap


def _stream_tap(
    public: str, upstream_model: str, drop_usage: bool, operation: Operation
) -> ResponsesTap:
    """Usage is part of every stream and never dropped. Whose public name a stored response had is
    not known: its model stays."""
    return ResponsesTap(upstream_model if operation.stored else public, upstream_model)


UPSTREAM = UpstreamSide(
    operations={**OPERATIONS, "stream": OPERATIONS["generate"], "list_models": LIST_MODELS},
    path=request.path,
    request_headers=openai_lines,
    edit_request=rename_model,
    read_answer=reply.read,
    stream_tap=_stream_tap,
    read_models=by_id,
    made_ids=made_ids,
)
