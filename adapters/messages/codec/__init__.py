"""The codecs of the messages family: between its wire and the hub's words.

``client`` is for those who call the gateway, ``upstream`` for those whom it calls; ``blocks`` is
what both have. Imported by the registry.
"""

from adapters.family.codec import ClientCodec, Codecs, UpstreamCodec
from adapters.messages.codec.client.decode_request import decode_request
from adapters.messages.codec.client.encode_answer import encode_answer, encode_count
from adapters.messages.codec.client.encode_stream import MessagesEncoder
from adapters.messages.codec.client.fields import FIELDS
from adapters.messages.codec.client.foreign import without_foreign, without_reasoning
from adapters.messages.codec.upstream.decode_answer import decode_answer, decode_count
from adapters.messages.codec.upstream.decode_stream import MessagesDecoder
from adapters.messages.codec.upstream.encode_request import encode_request
from adapters.messages.codec.upstream.verdicts import VERDICTS, verdicts_of

CLIENT = ClientCodec(
    decode_request=decode_request,
    encode_answer=encode_answer,
    open_encoder=MessagesEncoder,
    encode_count=encode_count,
    without_foreign=without_foreign,
    without_reasoning=without_reasoning,
    fields=FIELDS,
)

UPSTREAM = UpstreamCodec(
    verdicts=VERDICTS,
    verdicts_of=verdicts_of,
    encode_request=encode_request,
    decode_answer=decode_answer,
    open_decoder=MessagesDecoder,
    decode_count=decode_count,
)

CODECS = Codecs(CLIENT, UPSTREAM)
