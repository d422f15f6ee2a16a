"""The clients' side of the chat completions family. Imported by this folder's ``__init__``."""

from adapters.chat_completions import request
from adapters.chat_completions.fault import encode_fault
from adapters.chat_completions.kept import KEPT
from adapters.chat_completions.operations import GENERATE
from adapters.family import ClientSide
from adapters.family.fields import model_name
from adapters.family.rate_headers import openai_rate_lines
from adapters.openai import lists

CLIENT = ClientSide(
    operations={"generate": GENERATE},
    credentials=("authorization",),
    answer_headers=frozenset({"openai-processing-ms", "openai-version"}),
    conversation=request.conversation,
    model_name=model_name,
    peek=request.peek,
    encode_fault=encode_fault,
    keep_alive=lists.keep_alive,
    model_list=lists.model_list,
    model_entry=lists.model_entry,
    rate_lines=openai_rate_lines,
    kept=KEPT,
)
