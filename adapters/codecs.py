"""Codecs of the families, native pairings, and translators between each two families.

Separate from registry.py because the Hub needs the families but rarely translates. Imported by the
relay, commands and tests, and by the Hub where it writes or reads a body.
"""

from functools import partial

from adapters import chat_completions, generate_content, messages, responses
from adapters.bridge import Pairing, native
from adapters.chat_completions import decode_answer as chat_decode_answer
from adapters.chat_completions import decode_request as chat_decode_request
from adapters.chat_completions import encode_answer as chat_encode_answer
from adapters.chat_completions import encode_request as chat_encode_request
from adapters.chat_completions import reasoning_state as chat_reasoning_state
from adapters.family.codec import ClientCodec, Codecs, UpstreamCodec
from adapters.family.reply import counted_tokens
from adapters.family.verdicts import verdict_of
from adapters.generate_content import decode_answer as generate_decode_answer
from adapters.generate_content import decode_request as generate_decode_request
from adapters.generate_content import encode_answer as generate_encode_answer
from adapters.generate_content import encode_request as generate_encode_request
from adapters.generate_content import parts as generate_parts
from adapters.messages import decode_answer as messages_decode_answer
from adapters.messages import decode_request as messages_decode_request
from adapters.messages import encode_answer as messages_encode_answer
from adapters.messages import encode_request as messages_encode_request
from adapters.messages import parts as messages_parts
from adapters.responses import decode_answer as responses_decode_answer
from adapters.responses import decode_request as responses_decode_request
from adapters.responses import encode_answer as responses_encode_answer
from adapters.responses import encode_request as responses_encode_request
from adapters.responses import encode_stream as responses_encode_stream
from adapters.responses import reasoning_state as responses_reasoning_state
from adapters.translate import Translator

_FAMILIES = {
    module.FAMILY.name: module.FAMILY
    for module in (chat_completions, responses, messages, generate_content)
}

# (client's family, channel's family) -> how the channel serves the client natively
PAIRINGS: dict[tuple[str, str], Pairing] = {
    (family.name, family.name): native(family) for family in _FAMILIES.values()
}

CODECS: dict[str, Codecs] = {
    "chat_completions": Codecs(
        ClientCodec(
            decode_request=chat_decode_request.decode_request,
            encode_answer=chat_encode_answer.encode_answer,
            open_encoder=chat_encode_answer.ChatEncoder,
            encode_count=chat_encode_answer.encode_count,
            without_foreign=chat_reasoning_state.without_foreign,
            fields=chat_decode_request.FIELDS,
        ),
        UpstreamCodec(
            verdict=verdict_of("chat_completions"),
            encode_request=chat_encode_request.encode_request,
            decode_answer=chat_decode_answer.decode_answer,
            open_decoder=chat_decode_answer.ChatDecoder,
        ),
    ),
    "responses": Codecs(
        ClientCodec(
            decode_request=responses_decode_request.decode_request,
            encode_answer=responses_encode_answer.encode_answer,
            open_encoder=responses_encode_stream.ResponsesEncoder,
            encode_count=responses_encode_answer.encode_count,
            without_foreign=responses_reasoning_state.without_foreign,
            without_reasoning=responses_reasoning_state.without_reasoning,
            fields=responses_decode_request.FIELDS,
        ),
        UpstreamCodec(
            verdict=verdict_of("responses"),
            encode_request=responses_encode_request.encode_request,
            decode_answer=responses_decode_answer.decode_answer,
            open_decoder=responses_decode_answer.ResponsesDecoder,
            decode_count=partial(counted_tokens, "input_tokens"),
        ),
    ),
    "messages": Codecs(
        ClientCodec(
            decode_request=messages_decode_request.decode_request,
            encode_answer=messages_encode_answer.encode_answer,
            open_encoder=messages_encode_answer.MessagesEncoder,
            encode_count=messages_encode_answer.encode_count,
            without_foreign=messages_parts.without_foreign,
            without_reasoning=messages_parts.without_reasoning,
            fields=messages_decode_request.FIELDS,
        ),
        UpstreamCodec(
            verdict=verdict_of("messages"),
            encode_request=messages_encode_request.encode_request,
            decode_answer=messages_decode_answer.decode_answer,
            open_decoder=messages_decode_answer.MessagesDecoder,
            decode_count=partial(counted_tokens, "input_tokens"),
        ),
    ),
    "generate_content": Codecs(
        ClientCodec(
            decode_request=generate_decode_request.decode_request,
            encode_answer=generate_encode_answer.encode_answer,
            open_encoder=generate_encode_answer.ChunkEncoder,
            encode_count=generate_encode_answer.encode_count,
            without_foreign=generate_parts.without_foreign,
            without_reasoning=generate_parts.without_reasoning,
            foreign_mark=generate_parts.MARK,
            fields=generate_decode_request.FIELDS,
        ),
        UpstreamCodec(
            verdict=verdict_of("generate_content"),
            encode_request=generate_encode_request.encode_request,
            decode_answer=generate_decode_answer.decode_answer,
            open_decoder=generate_decode_answer.ChunkDecoder,
            decode_count=partial(counted_tokens, "totalTokens"),
        ),
    ),
}

# (client's family, channel's family) -> how the channel serves the client, where they differ
TRANSLATORS: dict[tuple[str, str], Translator] = {
    (client, upstream): Translator(_FAMILIES[upstream], of_client.client, of_upstream.upstream)
    for client, of_client in CODECS.items()
    for upstream, of_upstream in CODECS.items()
    if client != upstream
}

# Family -> translator to itself. Used for an answer in the other form (stream or whole) than the
# one requested, and for a body in another shape (adapters.reshape) with tools the model lacks.
REFRAMERS: dict[str, Translator] = {
    name: Translator(_FAMILIES[name], codecs.client, codecs.upstream)
    for name, codecs in CODECS.items()
}
