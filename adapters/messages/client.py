"""The clients' side of the messages family. Imported by this folder's ``__init__``."""

from adapters.family import ClientSide
from adapters.family.fields import model_name
from adapters.family.rate_headers import anthropic_rate_lines
from adapters.messages import lists, request
from adapters.messages.fault import encode_fault
from adapters.messages.kept import KEPT
from adapters.messages.operations import COUNT, GENERATE


def _keep_alive(started: bool) -> bytes:
    """A ping inside a message; before it a comment, since ping comes after message_start."""
    return b'event: ping\ndata: {"type": "ping"}\n\n' if started else b": keep-alive\n\n"


CLIENT = ClientSide(
    operations={"generate": GENERATE, "count": COUNT},
    credentials=("authorization", "x-api-key"),
    conversation=request.conversation,
    model_name=model_name,
    peek=request.peek,
    encode_fault=encode_fault,
    keep_alive=_keep_alive,
    model_list=lists.page,
    model_entry=lists.entry,
    rate_lines=anthropic_rate_lines,
    kept=KEPT,
)
