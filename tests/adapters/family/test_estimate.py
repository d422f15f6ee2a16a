"""Estimates compared to true counts, bounds for holds, and the weights of deltas."""

import base64
import json
import time

import pytest

from adapters.family import estimate
from adapters.json.structure import at_once

# Texts with their numbers of tokens in the o200k vocabulary, counted with tiktoken.
COUNTED = {
    "english": (
        45,
        "The harbour has two gauges, one on the old pier and one under the bridge. When"
        " the tide turns, the second of them is always ten minutes late, and nobody rem"
        "embers why. Ask the pilot before you trust either.",
    ),
    "german": (
        44,
        "Der Hafen hat zwei Pegel, einen an der alten Mole und einen unter der Brücke. "
        "Wenn die Flut dreht, geht der zweite immer zehn Minuten nach, und niemand weiß"
        " mehr, warum das so ist.",
    ),
    "russian": (
        45,
        "В гавани два водомерных поста: один на старом пирсе, другой под мостом. Когда "
        "начинается отлив, второй всегда отстаёт на десять минут, и никто уже не помнит"
        " почему.",
    ),
    "chinese": (
        51,
        "港口有两个水位计，一个在旧码头上，另一个在桥下。潮水转向的时候，第二个总是慢十"
        "分钟，没有人记得为什么。请先问领航员，再决定相信哪一个。",
    ),
    "japanese": (
        61,
        "港には水位計が二つあります。一つは古い桟橋に、もう一つは橋の下にあります。潮が"
        "変わるとき、二つ目はいつも十分遅れますが、その理由を覚えている人はもういません"
        "。",
    ),
    "korean": (
        55,
        "항구에는 수위계가 두 개 있습니다. 하나는 낡은 부두에, 다른 하나는 다리 아래에 "
        "있습니다. 조류가 바뀔 때 두 번째 것은 항상 십 분 늦지만 그 이유를 기억하는 사"
        "람은 없습니다.",
    ),
    "python": (
        74,
        "def gauge(readings: list[float], offset_s: float = 600.0) -> float:\n"
        '    """Return the level, corrected for the late gauge."""\n'
        "    if not readings:\n"
        '        raise ValueError("no readings")\n'
        "    late = [r for r in readings if r.delay >= offset_s]\n"
        "    return sum(late) / len(readings)\n",
    ),
    "json": (
        66,
        '{"port":"Brest","gauges":[{"id":17,"name":"old pier","delay_s":0'
        ',"active":true},{"id":18,"name":"bridge","delay_s":600,"active":fa'
        'lse}],"tides":{"high":"06:42","low":"12:55"},"unit":"m"}',
    ),
}

PNG = base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20).decode()
JPEG = base64.b64encode(b"\xff\xd8\xff\xe0" + bytes(range(256)) * 20).decode()
WEBP = base64.b64encode(b"RIFF\x00\x10\x00\x00WEBP" + bytes(range(256)) * 20).decode()
WAV = base64.b64encode(b"RIFF\x00\x10\x00\x00WAVE" + bytes(range(256)) * 20).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(range(256)) * 20).decode()
OTHER = base64.b64encode(bytes(range(256)) * 20).decode()


@pytest.mark.parametrize(("tokens", "text"), COUNTED.values(), ids=COUNTED)
def test_the_estimate_is_near_the_truth(tokens, text):
    assert estimate.estimate_tokens(text) == pytest.approx(tokens, rel=0.15)
    assert estimate.estimate_tokens(text * 50) == pytest.approx(tokens * 50, rel=0.15)


def test_the_estimate_is_within_a_tenth_on_the_whole():
    total = sum(tokens for tokens, _ in COUNTED.values())
    assert sum(estimate.estimate_tokens(text) for _, text in COUNTED.values()) == pytest.approx(
        total, rel=0.1
    )


@pytest.mark.parametrize(("tokens", "text"), COUNTED.values(), ids=COUNTED)
def test_the_bound_is_a_bound(tokens, text):
    for ascii_only in (True, False):
        body = json.dumps({"content": text}, ensure_ascii=ascii_only).encode()
        assert estimate.input_bound_tokens(body) > tokens


@pytest.mark.parametrize(("tokens", "text"), COUNTED.values(), ids=COUNTED)
def test_deltas_add_up_whatever_their_size(tokens, text):
    whole = estimate.output_weight(text)
    for size in (1, 3, 10):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert sum(map(estimate.output_weight, pieces)) == pytest.approx(whole, rel=0.25)
    assert estimate.output_units(text) == pytest.approx(tokens, rel=0.35)


@pytest.mark.parametrize(("tokens", "text"), COUNTED.values(), ids=COUNTED)
def test_a_body_weighs_what_its_text_weighs(tokens, text):
    assert estimate.body_weight(text.encode()) == estimate.output_weight(text)


def test_small_things():
    assert estimate.estimate_tokens("") == 0 and estimate.output_units("") == 0
    assert estimate.estimate_tokens(".") == 1 and estimate.output_units("x") == 1
    assert estimate.estimate_tokens("\u00ad") == 1
    assert estimate.estimate_tokens("😀" * 10) == 15
    assert [estimate.tokens_of_weight(weight) for weight in (0, 1, 16, 17)] == [0, 1, 1, 2]


def test_a_body_is_estimated_by_what_its_escapes_mean():
    for tokens, text in COUNTED.values():
        body = json.dumps([text]).encode()
        assert estimate.estimate_body_tokens(body) == pytest.approx(tokens + 3, rel=0.2)
    assert estimate.estimate_body_tokens(b"\xff") == 1


def in_body(family, media, mime="image/png"):
    if family == "chat":
        part = {"type": "image_url", "image_url": {"url": f"data:{mime};base64,{media}"}}
    elif family == "audio":
        part = {"type": "input_audio", "input_audio": {"data": media, "format": "wav"}}
    else:
        source = {"type": "base64", "media_type": mime, "data": media}
        part = {"type": "image", "source": source}
    return {"model": "m", "messages": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize("escaped", [False, True])
@pytest.mark.parametrize("media", [PNG, JPEG, WEBP])
@pytest.mark.parametrize("family", ["chat", "messages"])
def test_an_image_costs_a_stated_number_of_tokens(family, media, escaped):
    body = json.dumps(in_body(family, media)).encode()
    if escaped:
        body = body.replace(b"/", b"\\/")
    assert (
        estimate.IMAGE_BOUND_TOKENS
        < estimate.input_bound_tokens(body)
        < estimate.IMAGE_BOUND_TOKENS + 150
    )


@pytest.mark.parametrize("media", [WAV, PDF])
@pytest.mark.parametrize("family", ["chat", "messages", "audio"])
def test_other_media_cost_by_size_too(family, media):
    body = json.dumps(in_body(family, media)).encode()
    rule = estimate.IMAGE_BOUND_TOKENS + len(media) // estimate.MEDIA_BASE64_CHARS_PER_TOKEN
    assert rule < estimate.input_bound_tokens(body) < rule + 150


def test_unknown_formats_are_media_in_data_urls_only():
    rule = estimate.IMAGE_BOUND_TOKENS + len(OTHER) // estimate.MEDIA_BASE64_CHARS_PER_TOKEN
    body = json.dumps(in_body("chat", OTHER)).encode()
    assert rule < estimate.input_bound_tokens(body) < rule + 150
    body = json.dumps(in_body("messages", OTHER)).encode()
    assert estimate.input_bound_tokens(body) == len(body) // 2


@pytest.mark.parametrize(
    "text", [PNG[:400] + " and much text, " * 400, PNG[:12] + "!" * 6000, PNG[:400] + "!" * 6000]
)
def test_text_that_poses_as_media_counts_as_text(text):
    body = json.dumps(in_body("messages", text)).encode()
    assert estimate.input_bound_tokens(body) == len(body) // 2


def test_small_bodies_and_small_media_count_as_text():
    for media, padding in ((PNG[:900], 0), (PNG[:900], 5000), (PNG[:2000], 0)):
        body = json.dumps([in_body("messages", media), "x" * padding]).encode()
        assert estimate.input_bound_tokens(body) == len(body) // 2


def test_several_media_and_a_cut_body():
    body = json.dumps([in_body("chat", PNG), in_body("messages", JPEG), "x" * 4000]).encode()
    bound = estimate.input_bound_tokens(body)
    assert 2 * estimate.IMAGE_BOUND_TOKENS + 2000 <= bound < 2 * estimate.IMAGE_BOUND_TOKENS + 2300
    cut = json.dumps([in_body("chat", PNG)]).encode()[:6000]
    assert estimate.input_bound_tokens(cut) == 3000
    for tail in (b';base64,"', b'"data"', b'"data":"'):
        assert estimate.input_bound_tokens(b"x" * 4096 + tail) == (4096 + len(tail)) // 2


def test_base64_in_an_estimate_counts_as_media():
    text = f"Look at this: {PNG} and tell me."
    assert estimate.estimate_tokens(
        text
    ) == estimate.IMAGE_TYPICAL_TOKENS + estimate.estimate_tokens("Look at this:   and tell me.")


def test_speed_is_linear():
    began = time.perf_counter()
    estimate.estimate_tokens("x" * 1_000_000)
    estimate.estimate_tokens("a-" * 200_000)
    estimate.input_bound_tokens(b'"data":"' * 200_000)
    estimate.input_bound_tokens(b";base64," * 200_000)
    assert time.perf_counter() - began < 3


def test_a_bound_in_steps_is_the_bound():
    body = json.dumps(["word " * 50_000, in_body("messages", PNG)]).encode()
    bound = estimate.input_bound_tokens(body)
    assert at_once(estimate.input_bound_steps(body)) == bound > estimate.IMAGE_BOUND_TOKENS


def test_a_picture_over_several_pieces_is_counted_once():
    picture = "iVBORw0KGgo" + "Ab9+" * 60_000
    body = json.dumps({"image": picture, "text": "hello"}).encode()
    assert (
        estimate.IMAGE_TYPICAL_TOKENS
        <= estimate.estimate_body_tokens(body)
        < 2 * estimate.IMAGE_TYPICAL_TOKENS
    )
