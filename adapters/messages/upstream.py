"""The upstreams' side of the messages family. Imported by this folder's ``__init__``."""

from adapters.family import Operation, UpstreamSide
from adapters.family.fields import path, rename_model
from adapters.family.listed import by_id
from adapters.messages import reply, request
from adapters.messages.kept import made_ids
from adapters.messages.lists import MAX_PAGE
from adapters.messages.operations import COUNT, GENERATE, LIST_MODELS
from adapters.messages.stream import MessagesTap


def _stream_tap(
    public: str, upstream_model: str, drop_usage: bool, operation: Operation
) -> MessagesTap:
    """Usage is part of every stream and never dropped."""
    return MessagesTap(public, upstream_model)


UPSTREAM = UpstreamSide(
    operations={
        "generate": GENERATE,
        "stream": GENERATE,
        "count": COUNT,
        "list_models": LIST_MODELS,
    },
    path=path,
    request_headers=request.headers,
    edit_request=rename_model,
    read_answer=reply.read,
    stream_tap=_stream_tap,
    read_models=by_id,
    made_ids=made_ids,
    models_query=f"?limit={MAX_PAGE}",
)
