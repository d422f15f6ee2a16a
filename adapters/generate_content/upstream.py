"""The upstreams' side of the generate-content family. Imported by this folder's ``__init__``."""

from adapters.family import Operation, UpstreamSide
from adapters.family.headers import base_lines
from adapters.generate_content import lists, reply, request
from adapters.generate_content.operations import COUNT, GENERATE, LIST_MODELS, STREAM
from adapters.generate_content.stream import ElementTap, EventTap


def _stream_tap(
    public: str, upstream_model: str, drop_usage: bool, operation: Operation
) -> ElementTap | EventTap:
    """Usage is part of every stream and never dropped."""
    of_array = operation.framing == "json_array"
    return ElementTap(public, upstream_model) if of_array else EventTap(public, upstream_model)


UPSTREAM = UpstreamSide(
    operations={
        "generate": GENERATE,
        "stream": STREAM,
        "count": COUNT,
        "list_models": LIST_MODELS,
    },
    path=request.path,
    request_headers=base_lines,
    edit_request=request.edit,
    read_answer=reply.read,
    stream_tap=_stream_tap,
    read_models=lists.names,
    models_query=f"?pageSize={lists.MAX_PAGE}",
)
