"""What translates the generate-content family to and from the hub's words.

For its clients: ``decode_request``, ``encode_answer``, ``encode_stream``; for its upstreams:
``encode_request``, ``decode_answer``, ``decode_stream``. Imported by the registry.
"""

from adapters.family.codec import ClientCodec, Codecs, UpstreamCodec
from adapters.generate_content.codec.decode_answer import decode_answer, decode_count
from adapters.generate_content.codec.decode_request import decode_request
from adapters.generate_content.codec.decode_stream import ChunkDecoder
from adapters.generate_content.codec.encode_answer import encode_answer, encode_count
from adapters.generate_content.codec.encode_request import encode_request
from adapters.generate_content.codec.encode_stream import ChunkEncoder
from adapters.generate_content.codec.fields import FIELDS
from adapters.generate_content.codec.foreign import MARK, without_foreign, without_reasoning
from adapters.generate_content.codec.verdicts import VERDICTS, verdicts_of

CLIENT = ClientCodec(
    decode_request=decode_request,
    encode_answer=encode_answer,
    open_encoder=ChunkEncoder,
    encode_count=encode_count,
    without_foreign=without_foreign,
    without_reasoning=without_reasoning,
    foreign_mark=MARK,
    fields=FIELDS,
)

UPSTREAM = UpstreamCodec(
    verdicts=VERDICTS,
    verdicts_of=verdicts_of,
    encode_request=encode_request,
    decode_answer=decode_answer,
    open_decoder=ChunkDecoder,
    decode_count=decode_count,
)

CODECS = Codecs(CLIENT, UPSTREAM)
