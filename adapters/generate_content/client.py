"""The clients' side of the generate-content family. Imported by this folder's ``__init__``."""

from adapters.family import ClientSide
from adapters.family.rate_headers import no_rate_lines
from adapters.generate_content import lists, request
from adapters.generate_content.fault import encode_fault
from adapters.generate_content.kept import KEPT
from adapters.generate_content.operations import COUNT, GENERATE, STREAM, STREAM_ARRAY


def _keep_alive(started: bool) -> bytes:
    """An empty line, between events as between elements: comments break this family's clients."""
    return b"\r\n"


CLIENT = ClientSide(
    operations={
        "generate": GENERATE,
        "stream": STREAM,
        "stream_array": STREAM_ARRAY,
        "count": COUNT,
    },
    credentials=("x-goog-api-key", "?key", "authorization"),
    conversation=request.conversation,
    model_name=request.model_name,
    peek=request.peek,
    kept=KEPT,
    encode_fault=encode_fault,
    keep_alive=_keep_alive,
    model_list=lists.page,
    model_entry=lists.entry,
    rate_lines=no_rate_lines,
)
