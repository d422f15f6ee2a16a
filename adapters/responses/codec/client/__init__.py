"""The responses family as its clients speak it: requests in, answers out.

Imported by the codec's ``__init__``.
"""

from adapters.family.codec import ClientCodec
from adapters.responses.codec.client.decode_request import decode_request
from adapters.responses.codec.client.encode_answer import encode_answer, encode_count
from adapters.responses.codec.client.encode_stream import ResponsesEncoder
from adapters.responses.codec.client.fields import FIELDS
from adapters.responses.codec.client.without_foreign import without_foreign, without_reasoning

CLIENT = ClientCodec(
    decode_request=decode_request,
    encode_answer=encode_answer,
    open_encoder=ResponsesEncoder,
    encode_count=encode_count,
    without_foreign=without_foreign,
    without_reasoning=without_reasoning,
    fields=FIELDS,
)
