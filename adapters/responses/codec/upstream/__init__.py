"""The responses family as its upstreams speak it: requests out, answers in.

Imported by the codec's ``__init__``.
"""

from adapters.family.codec import UpstreamCodec
from adapters.responses.codec.upstream.decode_answer import decode_answer, decode_count
from adapters.responses.codec.upstream.decode_stream import ResponsesDecoder
from adapters.responses.codec.upstream.encode_request import encode_request
from adapters.responses.codec.upstream.verdicts import VERDICTS, verdicts_of

UPSTREAM = UpstreamCodec(
    verdicts=VERDICTS,
    verdicts_of=verdicts_of,
    encode_request=encode_request,
    decode_answer=decode_answer,
    open_decoder=ResponsesDecoder,
    decode_count=decode_count,
)
