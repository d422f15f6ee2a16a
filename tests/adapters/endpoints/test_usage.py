"""Usage in answers of endpoints, by examples in the vendors' documentation."""

import pytest

from adapters.endpoints import usage
from adapters.endpoints.table import ENDPOINTS
from adapters.family import Peek
from adapters.family.asks import Asks
from store.values.usage import Usage

SEARCH = {"meta": {"billed_units": {"search_units": 2}}}
TOKENS = {"input_tokens": 14, "output_tokens": 45}
PEEK = Peek("m", False, None, 1, include_usage=True, asks=Asks(uses=(("character", 5),)))


@pytest.mark.parametrize(
    ("read", "answer", "counts"),
    [
        (usage.input_usage, {"usage": {"prompt_tokens": 8, "total_tokens": 8}}, Usage(8)),
        (usage.input_usage, {"usage": {"total_tokens": 8}}, Usage(8)),
        (
            usage.input_usage,
            {"usage": {"prompt_tokens": 8, "prompt_tokens_details": {"image_tokens": 3}}},
            Usage(5, more=(("input_image", 3),)),
        ),
        (usage.input_usage, {"usage": {"prompt_tokens": -1}}, None),
        (usage.input_usage, {}, None),
        (usage.search_usage, SEARCH, Usage(more=(("search_unit", 2),))),
        (usage.search_usage, {"usage": {"total_tokens": 8}}, Usage(8)),
        (usage.search_usage, {"meta": {"billed_units": {"search_units": 10**6}}},
         Usage(more=(("search_unit", 1000),))),
        (usage.image_usage, {"usage": TOKENS}, Usage(14, more=(("output_image", 45),))),
        (
            usage.image_usage,
            {"usage": {**TOKENS, "input_tokens_details": {"image_tokens": 4, "text_tokens": 10},
                       "output_tokens_details": {"image_tokens": 40, "text_tokens": 5}}},
            Usage(10, 5, more=(("input_image", 4), ("output_image", 40))),
        ),
        (usage.image_usage, {"usage": {"input_tokens": 1}}, None),
        (usage.speech_usage, {"usage": TOKENS}, Usage(14, more=(("output_audio", 45),))),
        (
            usage.transcript_usage,
            {"usage": {**TOKENS, "input_token_details": {"audio_tokens": 10}}},
            Usage(4, 45, more=(("input_audio", 10),)),
        ),
        (usage.transcript_usage, {"usage": {"type": "duration", "seconds": 3}},
         Usage(more=(("audio_second", 3000),))),
        (usage.transcript_usage, {"duration": "2.5"}, Usage(more=(("audio_second", 2500),))),
        *(
            (usage.transcript_usage, {"duration": value}, None)
            for value in ("long", -1, True, 10**9, None, [1])
        ),
    ],
)  # fmt: skip
def test_reported(read, answer, counts):
    assert read(answer) == counts


@pytest.mark.parametrize(
    ("path", "priced", "counts"),
    [
        ("/v1/embeddings", (), Usage(7, 3)),
        ("/v1/completions", (), Usage(7, 3)),
        ("/v1/moderations", (), Usage()),
        ("/v1/rerank", (), Usage(7)),
        ("/v1/rerank", ("search_unit",), Usage(more=(("search_unit", 1),))),
        ("/v1/images/edits", (), Usage(more=(("image", 3),))),
        ("/v1/audio/speech", (), Usage(more=(("character", 5),))),
    ],
)
def test_nothing_reported(path, priced, counts):
    assert ENDPOINTS[path].unreported(PEEK, 7, 3, lambda meter: meter in priced) == counts
