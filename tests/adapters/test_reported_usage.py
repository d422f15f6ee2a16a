"""Usage as vendors report it, whole and streamed, for any cut of the stream: disjoint counts by
meter, conditions of service, other models, the vendor's own cost (pricing.md, section 4)."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.codecs import PAIRINGS
from adapters.registry import FAMILIES
from store.values.meters import METERS
from store.values.usage import MAX_TOKENS, Extras, OtherUsage, Served, Usage
from tests.adapters.reports import (
    CHAT,
    GOOGLE,
    MAX_EVENT_BYTES,
    MESSAGES,
    RESPONSES,
    Report,
    bridge_after,
    chat,
    event,
    metadata,
    modality,
    read,
    spoken,
    streamed,
)


def iteration(kind: str, tokens_in: int, tokens_out: int, **fields: Any) -> dict[str, Any]:
    return {"type": kind, "input_tokens": tokens_in, "output_tokens": tokens_out, **fields}


FILE_SEARCHES = tuple({"type": "file_search_call", "id": f"fs_{n}"} for n in (1, 2))
CODE = tuple({"type": "code_interpreter_call", "container_id": f"cntr_{n}"} for n in "aab")
DRAWN = {"input_tokens": 300, "input_tokens_details": {"text_tokens": 100, "image_tokens": 200}}
QUERIES = {"webSearchQueries": ["tea", "pot", "tea", ""], "groundingChunks": [{"web": {}}]}
ADVICE = iteration("advisor_message", 823, 1612, model="wise", cache_read_input_tokens=40)
COMPACTION = iteration("compaction", 5000, 300)
ADVISED = OtherUsage("wise", Usage(823, 1612, 40), "advisor")

SHAPES = [
    (CHAT, Report(chat()), {}),
    (
        CHAT,
        Report(
            chat(
                prompt_tokens_details={
                    **{"text_tokens": 600, "audio_tokens": 300, "image_tokens": 100},
                    **{"cached_tokens": 0, "cache_write_tokens": 0},
                },
                completion_tokens_details={
                    **{"text_tokens": 250, "audio_tokens": 200, "reasoning_tokens": 50},
                },
            )
        ),
        {
            **{"input": 600, "input_audio": 300, "input_image": 100},
            **{"output": 250, "output_audio": 200, "reasoning": 50},
        },
    ),
    # Cached tokens, whose kind is not reported here, count as text first; so do tokens written to
    # the cache.
    (
        CHAT,
        Report(
            chat(
                prompt_tokens_details={
                    **{"audio_tokens": 300, "image_tokens": 100, "video_tokens": 50},
                    **{"cached_tokens": 850, "cache_write_tokens": 40},
                }
            )
        ),
        {"input": 0, "cache_read": 700, "cache_read_audio": 150, "cache_write": 40}
        | {"input_audio": 110},
    ),
    (CHAT, Report(chat(cached_tokens=300)), {"input": 700, "cache_read": 300}),
    (CHAT, Report(chat(prompt_cache_hit_tokens=1)), {"input": 999, "cache_read": 1}),
    (
        CHAT,
        Report(chat(total_tokens=1590, completion_tokens_details={"reasoning_tokens": 90})),
        {"reasoning": 90},
    ),
    (
        CHAT,
        Report(chat(total_tokens=1500, completion_tokens_details={"reasoning_tokens": 90})),
        {"output": 410, "reasoning": 90},
    ),
    (CHAT, Report(chat(num_search_queries=4, num_sources_used=9)), {"web_search": 4}),
    (CHAT, Report(chat(num_sources_used=3)), {"web_search": 3}),
    (
        RESPONSES,
        Report(
            spoken(),
            {"tool_usage": {"web_search": {"num_requests": 4}, "image_gen": None}},
            (*FILE_SEARCHES, *CODE),
        ),
        {"web_search": 4, "file_search": 2, "code_interpreter": 2},
    ),
    (
        RESPONSES,
        Report(
            spoken(
                input_tokens_details={
                    "cached_tokens": 200,
                    "cache_write_tokens": 400,
                    "cache_write_tokens_details": {"ttl_30m_tokens": 300, "ttl_12h_tokens": 100},
                }
            )
        ),
        {"input": 400, "cache_read": 200, "cache_write": 300, "cache_write_1h": 100},
    ),
    (
        MESSAGES,
        Report(
            spoken(server_tool_use={"web_search_requests": 2, "web_fetch_requests": 3}),
            {"container": {"id": "c"}},
        ),
        {"web_search": 2, "web_fetch": 3, "code_interpreter": 1},
    ),
    (MESSAGES, Report(spoken(server_tool_use=None), {"container": None}), {}),
    (MESSAGES, Report(spoken(iterations=[iteration("message", 400, 3)])), {}),
    (
        GOOGLE,
        Report(
            metadata(
                promptTokensDetails=modality(TEXT=300, AUDIO=200, IMAGE=250, VIDEO=150, DOCUMENT=9)
            )
        ),
        {"input": 400, "input_audio": 200, "input_image": 250, "input_video": 150},
    ),
    (
        GOOGLE,
        Report(
            metadata(
                cachedContentTokenCount=300,
                promptTokensDetails=modality(TEXT=700, AUDIO=300),
                cacheTokensDetails=modality(TEXT=200, AUDIO=100),
            )
        ),
        {"input": 500, "input_audio": 200, "cache_read": 200, "cache_read_audio": 100},
    ),
    (
        GOOGLE,
        Report(
            metadata(
                toolUsePromptTokenCount=60,
                toolUsePromptTokensDetails=modality(TEXT=40, IMAGE=20),
                thoughtsTokenCount=40,
                candidatesTokensDetails=modality(AUDIO=120, IMAGE=30, TEXT=1),
            )
        ),
        {"input": 1040, "input_image": 20, "reasoning": 40}
        | {"output": 350, "output_audio": 120, "output_image": 30},
    ),
    (GOOGLE, Report(metadata(), candidate={"groundingMetadata": QUERIES}), {"web_search": 3}),
    (
        GOOGLE,
        Report(metadata(), candidate={"groundingMetadata": {"groundingChunks": [{"maps": {}}, 7]}}),
        {},
    ),
    (
        GOOGLE,
        Report(
            metadata(), candidate={"groundingMetadata": {"groundingChunks": [{"maps": {"a": 1}}]}}
        ),
        {"maps": 1},
    ),
    (GOOGLE, Report(metadata(), candidate={"groundingMetadata": 7}), {}),
]


@pytest.mark.parametrize(("family", "report", "meters"), SHAPES)
def test_counts_by_meter(family, report, meters):
    found = read(family, report)
    assert found.usage is not None and found.usage.extras is None and found.served == Served()
    expected = {"input": 1000, "output": 500} | meters
    assert found.usage.meters == {name: count for name, count in expected.items() if count}
    assert list(found.usage.meters) == [name for name in METERS if expected.get(name)]
    stream = bridge_after(family, streamed(family, report))
    assert stream.whole and stream.usage == found.usage and stream.served == found.served


TIERS = [
    (
        CHAT,
        Report(chat(), {"service_tier": "Priority"}, early={"service_tier": "auto"}),
        "priority",
    ),
    (CHAT, Report(chat(), {"service_tier": "default"}, early={"service_tier": "fast"}), "default"),
    (CHAT, Report(chat(), {"service_tier": "fast"}), "priority"),
    (CHAT, Report(chat(), {"service_tier": "on_demand"}), "default"),
    (CHAT, Report(chat(), {"service_tier": "Turbo"}), "turbo"),
    (CHAT, Report(chat(), {"service_tier": ["flex"]}), ""),
    (RESPONSES, Report(spoken(), {"service_tier": "flex"}, early={"service_tier": "auto"}), "flex"),
    (RESPONSES, Report(spoken(), {"service_tier": "ultrafast"}), "ultrafast"),
    (RESPONSES, Report(spoken(), early={"service_tier": "priority"}), ""),
    (MESSAGES, Report(spoken(service_tier="standard")), "default"),
    (MESSAGES, Report(spoken(service_tier="batch")), "batch"),
    (GOOGLE, Report(metadata(serviceTier="flex")), "flex"),
    (GOOGLE, Report(metadata(serviceTier="standard", trafficType="ON_DEMAND_FLEX")), "default"),
    (GOOGLE, Report(metadata(trafficType="ON_DEMAND_PRIORITY")), "priority"),
    (GOOGLE, Report(metadata(trafficType="ON_DEMAND_OFFPEAK")), "offpeak"),
    (GOOGLE, Report(metadata(trafficType="ON_DEMAND")), "default"),
    (GOOGLE, Report(metadata(trafficType="PROVISIONED_THROUGHPUT")), ""),
]


@pytest.mark.parametrize(("family", "report", "tier"), TIERS)
def test_the_tier_of_service(family, report, tier):
    assert read(family, report).served == Served(tier)
    assert bridge_after(family, streamed(family, report)).served == Served(tier)


def test_speed_and_region_that_only_the_start_of_a_message_has():
    report = Report(spoken(service_tier="standard", speed="fast", inference_geo="US"))
    assert read(MESSAGES, report).served == Served("default", "fast", "us")
    assert (
        bridge_after(MESSAGES, streamed(MESSAGES, report)).served == read(MESSAGES, report).served
    )


def test_the_tier_in_the_head_of_an_answer_is_less_than_the_one_in_its_body():
    for usage, tier in ((metadata(), "priority"), (metadata(serviceTier="flex"), "flex")):
        operation = FAMILIES[GOOGLE].upstream.operations["stream"]
        bridge = PAIRINGS[GOOGLE, GOOGLE].open_bridge("m", "m", False, operation, MAX_EVENT_BYTES)
        bridge.note_tier("Priority")
        for piece in streamed(GOOGLE, Report(usage)):
            bridge.feed(piece)
        assert bridge.served == Served(tier)


def test_a_tier_that_changes_between_events_that_are_alike():
    def chunk(text, tier):
        return event({"id": "c", "choices": [{"delta": {"content": text}}], "service_tier": tier})

    tiers = ["auto", "flex", "flex", "priority", "priority", "flex", "flex", "flex"]
    for count in range(1, len(tiers) + 1):
        bridge = bridge_after(CHAT, [chunk(f"text {tier}", tier) for tier in tiers[:count]])
        assert bridge.served == Served(tiers[count - 1])


def test_a_response_that_failed_is_billed_as_it_was_served():
    response = {"status": "failed", "error": {"code": "server_error"}, "usage": spoken()}
    response |= {"service_tier": "priority", "tool_usage": {"web_search": {"num_requests": 2}}}
    failed = event({"type": "response.failed", "response": response}, "response.failed")
    bridge = bridge_after(RESPONSES, [failed])
    assert bridge.fault is not None and bridge.served == Served("priority")
    assert bridge.usage == Usage(1000, 500, more=(("web_search", 2),))


@pytest.mark.parametrize(
    ("fields", "counts"),
    [
        ({}, {}),
        (
            {"output_tokens": 1056, "output_tokens_details": {"image_tokens": 1000}},
            {"output": 556, "output_image": 1000},
        ),
        ({"output_tokens": 1056}, {"output_image": 1056}),
    ],
)
def test_tokens_of_the_model_that_makes_pictures(fields, counts):
    report = Report(spoken(), {"tool_usage": {"image_gen": {**DRAWN, **fields}}})
    usage = read(RESPONSES, report).usage
    expected = {"input": 1100, "output": 500, "input_image": 200} | counts
    assert usage is not None and usage.meters == expected and usage.inputs == 1300
    assert usage.extras == Extras(apart_tokens=300)
    assert bridge_after(RESPONSES, streamed(RESPONSES, report)).usage == usage


def test_items_that_the_last_event_of_a_response_lacks_and_items_without_ids():
    bare = Report(spoken(), items=(*FILE_SEARCHES, *CODE))
    *events, _ = streamed(RESPONSES, bare)
    usage = bridge_after(RESPONSES, [*events, *streamed(RESPONSES, Report(spoken()))[-1:]]).usage
    assert usage is not None and dict(usage.more) == {"file_search": 2, "code_interpreter": 2}
    nameless = tuple({"type": item["type"]} for item in (*FILE_SEARCHES, *CODE))
    usage = read(RESPONSES, Report(spoken(), items=nameless)).usage
    assert usage is not None and dict(usage.more) == {"file_search": 2, "code_interpreter": 1}


def test_uses_of_a_stream_are_counted_up_to_a_limit(monkeypatch):
    monkeypatch.setattr("adapters.responses.stream.MAX_USES", 1)
    *events, _ = streamed(RESPONSES, Report(spoken(), items=FILE_SEARCHES))
    usage = bridge_after(RESPONSES, [*events, *streamed(RESPONSES, Report(spoken()))[-1:]]).usage
    assert usage is not None and dict(usage.more) == {"file_search": 1}


@pytest.mark.parametrize(
    ("iterations", "counts", "others"),
    [
        ([iteration("message", 600, 1), COMPACTION, 7], Usage(6000, 800), ()),
        ([iteration("message", 9, 9), ADVICE], Usage(1000, 500), (ADVISED,)),
        (
            [ADVICE, ADVICE],
            Usage(1000, 500),
            (OtherUsage("wise", Usage(1646, 3224, 80), "advisor"),),
        ),
        ([{**ADVICE, "model": None}], Usage(1823, 2112, 40), ()),
        ([{**ADVICE, "input_tokens": "x"}], Usage(1000, 500), ()),
        ([iteration("unheard_of", 9, 9, model="wise")], Usage(1000, 500), ()),
        # After a fallback the top-level counts are those of the model that answered.
        (
            [
                iteration("message", 412, 3),
                iteration("fallback_message", 823, 1612, model="second"),
            ],
            Usage(412, 3),
            (OtherUsage("second", Usage(823, 1612), "fallbacks"),),
        ),
        (
            [
                iteration("message", 412, 3, model="first"),
                iteration("message", 10, 1),
                iteration("message", 20, 2, model="second"),
                COMPACTION,
                iteration("fallback_message", 800, 16, model="second"),
                ADVICE,
            ],
            Usage(5422, 304),
            (OtherUsage("second", Usage(820, 18), "fallbacks"), ADVISED),
        ),
        (
            [iteration("fallback_message", 823, 1612, model="second")],
            Usage(),
            (OtherUsage("second", Usage(823, 1612), "fallbacks"),),
        ),
    ],
)
def test_iterations_of_a_message(iterations, counts, others):
    report = Report(spoken(iterations=iterations))
    usage = read(MESSAGES, report).usage
    assert usage is not None and usage.bare() == counts
    assert (usage.extras.other_models if usage.extras else ()) == others
    assert bridge_after(MESSAGES, streamed(MESSAGES, report)).usage == usage


def test_compaction_chooses_no_rate():
    usage = read(MESSAGES, Report(spoken(iterations=[COMPACTION]))).usage
    assert usage is not None and usage.extras == Extras(apart_tokens=5000)


def test_models_beside_the_first_sixteen_are_charged_as_the_called_one():
    models = [iteration("advisor_message", 10, 1, model=f"m{n}") for n in range(20)]
    usage = read(MESSAGES, Report(spoken(iterations=[*models, models[0]]))).usage
    assert usage is not None and usage.extras is not None and usage.bare() == Usage(1040, 504)
    assert [other.model for other in usage.extras.other_models] == [f"m{n}" for n in range(16)]
    assert usage.extras.other_models[0].usage == Usage(20, 2)


@pytest.mark.parametrize(
    ("fields", "nanos"),
    [
        ({"cost": 0.00314, "cost_details": {"upstream_inference_cost": None}}, 3_140_000),
        ({"cost": 0.001, "cost_details": {"upstream_inference_cost": 0.5}}, 1_000_000),
        (
            {"cost": 0.001, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.5}},
            501_000_000,
        ),
        ({"cost": {"total_cost": 0.0061, "request_cost": 0.005}}, 6_100_000),
        ({"cost_in_usd_ticks": 37_756_001}, 3_775_601),
        ({"cost": 0}, 0),
        *(({"cost": odd}, None) for odd in (None, True, "1", -1, 1e9, {}, [], float("nan"))),
        *(({"cost_in_usd_ticks": odd}, None) for odd in (None, True, 1.5, -1, 2**64)),
    ],
)
@pytest.mark.parametrize(("family", "usage"), [(CHAT, chat()), (RESPONSES, spoken())])
def test_the_vendors_own_cost(family, usage, fields, nanos):
    found = read(family, Report({**usage, **fields})).usage
    assert found is not None and found.bare() == Usage(1000, 500)
    assert (found.extras.vendor_nanos if found.extras else None) == nanos


@pytest.mark.parametrize(("family", "report"), [(family, report) for family, report, _ in SHAPES])
@given(data=st.data())
def test_counts_do_not_depend_on_the_cut_of_a_stream(family, report, data):
    events = streamed(family, report)
    cuts = data.draw(st.lists(st.integers(0, sum(map(len, events))), max_size=6))
    stream, places = b"".join(events), [0, *sorted(cuts), None]
    pieces = [stream[start:end] for start, end in pairwise(places)]
    expected = read(family, report)
    found = bridge_after(family, list(filter(None, pieces)))
    assert (found.usage, found.served) == (expected.usage, expected.served)


counts = st.integers(0, 2000) | st.sampled_from([MAX_TOKENS])


def details(*names: str) -> Any:
    return st.dictionaries(st.sampled_from(names), counts | st.none())


KINDS = ("text_tokens", "audio_tokens", "image_tokens", "video_tokens")
modalities = st.lists(
    st.fixed_dictionaries(
        {
            "modality": st.sampled_from(["TEXT", "AUDIO", "IMAGE", "VIDEO", "DOCUMENT", "NEW"]),
            "tokenCount": counts,
        }
    )
)
inputs = details(*KINDS, "cached_tokens", "cache_write_tokens")
outputs = details(*KINDS, "reasoning_tokens")


def adds_up(usage: Usage | None, prompt: int, completion: int) -> None:
    assert usage is not None
    meters = usage.meters
    assert min(meters.values(), default=0) >= 0
    of_output = sum(n for name, n in meters.items() if METERS[name].side in ("output", "reasoning"))
    of_input = sum(n for name, n in meters.items() if METERS[name].side) - of_output
    assert (of_input, of_output) == (prompt, completion) == (usage.inputs, usage.outputs)


@given(prompt=counts, completion=counts, inputs=inputs, outputs=outputs)
def test_the_meters_of_openais_families_add_up_to_the_vendors_totals(
    prompt, completion, inputs, outputs
):
    usage = chat(
        prompt, completion, prompt_tokens_details=inputs, completion_tokens_details=outputs
    )
    adds_up(read(CHAT, Report(usage)).usage, prompt, completion)
    usage = spoken(prompt, completion, input_tokens_details=inputs, output_tokens_details=outputs)
    adds_up(read(RESPONSES, Report(usage)).usage, prompt, completion)


@given(plain=counts, read_=counts, written=counts, output=counts, thinking=counts)
def test_the_meters_of_messages_add_up_to_the_vendors_totals(
    plain, read_, written, output, thinking
):
    usage = spoken(
        plain,
        output,
        cache_read_input_tokens=read_,
        cache_creation_input_tokens=written,
        output_tokens_details={"thinking_tokens": thinking},
    )
    adds_up(read(MESSAGES, Report(usage)).usage, plain + read_ + written, output)


@given(
    prompt=st.integers(0, 2000),
    output=st.integers(0, 2000),
    more=details("cachedContentTokenCount", "toolUsePromptTokenCount", "thoughtsTokenCount"),
    lists=st.dictionaries(
        st.sampled_from(
            [
                *("promptTokensDetails", "cacheTokensDetails", "candidatesTokensDetails"),
                "toolUsePromptTokensDetails",
            ]
        ),
        modalities,
    ),
)
def test_the_meters_of_generate_content_add_up_to_the_vendors_totals(prompt, output, more, lists):
    found = read(GOOGLE, Report(metadata(prompt, output, **more, **lists))).usage
    prompt += more.get("toolUsePromptTokenCount") or 0
    output += more.get("thoughtsTokenCount") or 0
    adds_up(found, min(prompt, MAX_TOKENS), min(output, MAX_TOKENS))
