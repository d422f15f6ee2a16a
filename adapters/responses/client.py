"""The clients' side of the responses family. Imported by this folder's ``__init__``."""

from adapters.family import ClientSide
from adapters.family.fields import model_name
from adapters.family.rate_headers import openai_rate_lines
from adapters.openai import lists
from adapters.responses import request
from adapters.responses.fault import encode_fault
from adapters.responses.kept import KEPT
from adapters.responses.operations import OPERATIONS

CLIENT = ClientSide(
    operations=OPERATIONS,
    credentials=("authorization",),
    answer_headers=frozenset({"openai-processing-ms", "openai-version"}),
    conversation=request.conversation,
    model_name=model_name,
    peek=request.peek,
    kept=KEPT,
    encode_fault=encode_fault,
    keep_alive=lists.keep_alive,
    model_list=lists.model_list,
    model_entry=lists.model_entry,
    rate_lines=openai_rate_lines,
)
