"""Translation of the chat completions family: between its wire and the hub's words.

Imported by ``adapters.registry`` only.
"""

from adapters.chat_completions.codec.decode_answer import decode_answer
from adapters.chat_completions.codec.decode_request import decode_request
from adapters.chat_completions.codec.decode_stream import ChatDecoder
from adapters.chat_completions.codec.encode_answer import encode_answer, encode_count
from adapters.chat_completions.codec.encode_request import encode_request
from adapters.chat_completions.codec.encode_stream import ChatEncoder
from adapters.chat_completions.codec.fields import FIELDS
from adapters.chat_completions.codec.reasoning_state import without_foreign
from adapters.chat_completions.codec.verdicts import VERDICTS, verdicts_of
from adapters.family.codec import ClientCodec, Codecs, UpstreamCodec

CLIENT = ClientCodec(
    *(decode_request, encode_answer, ChatEncoder, encode_count, without_foreign), fields=FIELDS
)
UPSTREAM = UpstreamCodec(VERDICTS, verdicts_of, encode_request, decode_answer, ChatDecoder)
CODECS = Codecs(CLIENT, UPSTREAM)
