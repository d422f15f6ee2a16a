"""The generate-content vendor, read byte by byte and as JSON."""

import base64
import json

import httpx2
import pytest

from tests.support.upstream import ScriptedUpstream
from tests.vendor.family import Refusal
from tests.vendor.generate_content import GenerateContent

HEADERS = {"x-goog-api-key": "sk-up"}
TOOLS = [
    {
        "functionDeclarations": [
            {
                "name": name,
                "parameters": {"type": "OBJECT", "properties": {"port": {"type": "STRING"}}},
            }
            for name in ("get_tide", "get_wind")
        ]
    }
]
THINKING = {"thinkingConfig": {"includeThoughts": True}}
USAGE_SUM = ("promptTokenCount", "candidatesTokenCount", "thoughtsTokenCount")


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


def said(words="", text="Hello"):
    return [{"role": "user", "parts": [{"text": f"[[demo ms=0 {words}]] {text}"}]}]


def post(upstream, action, body, headers=HEADERS, model="demo-large"):
    url = f"{upstream.url}/v1beta/models/{model}:{action}"
    return httpx2.post(url, json=body, headers=headers)


def ask(upstream, model="demo-large", **body):
    answer = post(upstream, "generateContent", body, model=model)
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"] == "application/json"
    return answer.json()


def stream_text(upstream, alt="?alt=sse", model="demo-large", **body):
    answer = post(upstream, "streamGenerateContent" + alt, body, model=model)
    assert answer.status_code == 200, answer.text
    return answer


def chunks_of(upstream, **body):
    """The stream with alt=sse; every byte of it is a frame."""
    answer = stream_text(upstream, **body)
    assert answer.headers["content-type"].startswith("text/event-stream")
    frames = answer.text.split("\r\n\r\n")
    assert frames.pop() == ""
    assert all(frame.startswith("data: {") and "\n" not in frame for frame in frames)
    return [json.loads(frame.removeprefix("data: ")) for frame in frames]


def parts_of(chunks, index=0):
    """The parts of one candidate of a stream, in order."""
    return [
        part
        for chunk in chunks
        for candidate in chunk.get("candidates", [])
        if candidate["index"] == index
        for part in candidate["content"].get("parts", [])
    ]


def text_of(chunks, index=0):
    parts = parts_of(chunks, index)
    return "".join(part.get("text", "") for part in parts if not part.get("thought"))


def reasons_of(chunks):
    return [chunk["candidates"][0].get("finishReason") for chunk in chunks]


def error_of(answer):
    error = answer.json()["error"]
    assert list(answer.json()) == ["error"]
    assert error["code"] == answer.status_code
    return error


# Answers.


def test_text(upstream):
    answer = ask(upstream, contents=said(text="Höre ☂"))
    [candidate] = answer["candidates"]
    assert candidate["content"]["role"] == "model"
    assert "Höre ☂" in candidate["content"]["parts"][0]["text"]
    assert (candidate["index"], candidate["finishReason"]) == (0, "STOP")
    assert answer["modelVersion"] == "demo-large"
    assert answer["responseId"] != ask(upstream, contents=said())["responseId"]
    usage = answer["usageMetadata"]
    assert usage["totalTokenCount"] == usage["promptTokenCount"] + usage["candidatesTokenCount"]
    assert usage["promptTokensDetails"] == [
        {"modality": "TEXT", "tokenCount": usage["promptTokenCount"]}
    ]
    assert "thoughtsTokenCount" not in usage


def test_a_stream_says_what_a_plain_answer_says(upstream):
    plain = ask(upstream, contents=said(text="ein Blatt\u2028zwei"))
    chunks = chunks_of(upstream, contents=said(text="ein Blatt\u2028zwei"))
    assert len(chunks) > 5
    assert text_of(chunks) == plain["candidates"][0]["content"]["parts"][0]["text"]
    assert reasons_of(chunks) == [None] * (len(chunks) - 1) + ["STOP"]
    assert chunks[-1]["usageMetadata"] == plain["usageMetadata"]
    counts = [chunk["usageMetadata"]["candidatesTokenCount"] for chunk in chunks]
    assert counts == sorted(counts) and 0 < counts[0] < counts[-1]
    assert len({chunk["responseId"] for chunk in chunks}) == 1


def test_ends_of_lines_of_unicode_are_escaped(upstream):
    answer = stream_text(upstream, contents=said('text="a\u2028b\u2029c"'))
    assert "\u2028" not in answer.text and "\u2029" not in answer.text
    assert "a\\u2028b\\u2029c" in answer.text


@pytest.mark.parametrize("path", ["v1/models/vendor/qwen3:8b", "v1beta/models/vendor%2Fqwen3:8b"])
def test_a_model_name_is_everything_up_to_the_last_colon(upstream, path):
    url = f"{upstream.url}/{path}:generateContent"
    answer = httpx2.post(url, json={"contents": said()}, headers=HEADERS)
    assert answer.json()["modelVersion"] == "vendor/qwen3:8b"
    assert upstream.log()[-1]["model"] == "vendor/qwen3:8b"


def test_the_log_knows_the_family_and_the_stream(upstream):
    chunks_of(upstream, contents=said())
    entry = upstream.log()[-1]
    assert (entry["family"], entry["stream"]) == ("generate_content", True)
    assert entry["model"] == "demo-large"
    ask(upstream, contents=said())
    assert upstream.log()[-1]["stream"] is False
    post(upstream, "streamGenerateContent", {"foo": 1})
    entry = upstream.log()[-1]
    assert (entry["model"], entry["stream"], entry["status"]) == ("demo-large", True, 400)


def test_candidates(upstream):
    config = {"candidateCount": 2}
    answer = ask(upstream, contents=said(), generationConfig=config)
    chunks = chunks_of(upstream, contents=said(), generationConfig=config)
    one = ask(upstream, contents=said())["usageMetadata"]["candidatesTokenCount"]
    for index in (0, 1):
        assert answer["candidates"][index]["index"] == index
        assert text_of(chunks, index) == answer["candidates"][index]["content"]["parts"][0]["text"]
    assert [chunk["candidates"][0]["index"] for chunk in chunks][:4] == [0, 1, 0, 1]
    assert reasons_of(chunks)[-2:] == ["STOP", "STOP"]
    assert answer["usageMetadata"] == chunks[-1]["usageMetadata"]
    assert answer["usageMetadata"]["candidatesTokenCount"] == 2 * one


# Thoughts and calls.


def test_thoughts_are_shown_on_demand_only(upstream):
    shown = ask(upstream, contents=said(), generationConfig=THINKING)
    thought, text = shown["candidates"][0]["content"]["parts"]
    assert thought["thought"] is True and thought["text"]
    assert base64.b64decode(text["thoughtSignature"], validate=True)
    hidden = {"thinkingConfig": {"thinkingBudget": 100}}
    quiet = ask(upstream, contents=said(), generationConfig=hidden)
    [only] = quiet["candidates"][0]["content"]["parts"]
    assert only == text
    for usage in (shown["usageMetadata"], quiet["usageMetadata"]):
        assert usage["thoughtsTokenCount"] > 0
        assert usage["totalTokenCount"] == sum(usage[name] for name in USAGE_SUM)
    plain = ask(upstream, contents=said())["usageMetadata"]
    assert plain["candidatesTokenCount"] == shown["usageMetadata"]["candidatesTokenCount"]


def test_the_stream_of_thoughts_ends_with_the_signature_on_an_empty_text(upstream):
    chunks = chunks_of(upstream, contents=said(), generationConfig=THINKING)
    parts = parts_of(chunks)
    assert [part.get("thought") for part in parts[:3]] == [True, True, None]
    assert parts[-1]["text"] == ""
    assert [index for index, part in enumerate(parts) if "thoughtSignature" in part] == [
        len(parts) - 1
    ]
    assert reasons_of(chunks)[-2:] == [None, "STOP"]
    assert chunks[0]["usageMetadata"]["thoughtsTokenCount"] > 0


def test_parallel_calls_and_their_results(upstream):
    contents = said(text="get_tide, get_wind!")
    answer = ask(upstream, contents=contents, tools=TOOLS)
    [candidate] = answer["candidates"]
    assert candidate["finishReason"] == "STOP"
    parts = candidate["content"]["parts"]
    assert parts == [
        {"functionCall": {"name": name, "args": {"port": "demo"}}}
        for name in ("get_tide", "get_wind")
    ]
    results = [
        {"functionResponse": {"name": part["functionCall"]["name"], "response": {"ok": True}}}
        for part in parts
    ]
    contents += [candidate["content"], {"role": "user", "parts": results}]
    after = ask(upstream, contents=contents, tools=TOOLS)
    assert "tool results" in after["candidates"][0]["content"]["parts"][0]["text"]


def test_a_signing_model_names_and_signs_its_calls_and_wants_that_back(upstream):
    contents = said("tools")
    answer = ask(upstream, model="gemini-3-pro", contents=contents, tools=TOOLS)
    content = answer["candidates"][0]["content"]
    first, second = content["parts"]
    assert first["thoughtSignature"] and "thoughtSignature" not in second
    assert first["functionCall"]["id"] != second["functionCall"]["id"]
    results = [
        {
            "functionResponse": {
                "id": part["functionCall"]["id"],
                "name": part["functionCall"]["name"],
                "response": {},
            }
        }
        for part in content["parts"]
    ]
    contents += [content, {"role": "user", "parts": results}]
    assert ask(upstream, model="gemini-3-pro", contents=contents, tools=TOOLS)
    del first["thoughtSignature"]
    refused = post(upstream, "generateContent", {"contents": contents}, model="gemini-3-pro")
    assert "thought_signature" in error_of(refused)["message"]
    assert refused.status_code == 400


def test_streamed_calls_are_whole_and_the_finish_comes_after_them(upstream):
    chunks = chunks_of(
        upstream, model="gemini-3-pro", contents=said("tools"), tools=TOOLS, generationConfig={}
    )
    calls = [part for part in parts_of(chunks) if "functionCall" in part]
    assert [part["functionCall"]["args"] for part in calls] == [{"port": "demo"}] * 2
    assert ["thoughtSignature" in part for part in calls] == [True, False]
    assert reasons_of(chunks) == [None, None, "STOP"]
    assert parts_of(chunks)[-1] == {"text": ""}


# Bounds, formats, media.


def test_bounds(upstream):
    config = {"maxOutputTokens": 2}
    [candidate] = ask(upstream, contents=said(), generationConfig=config)["candidates"]
    assert candidate["content"]["parts"] == [{"text": "Hello fr"}]
    assert candidate["finishReason"] == "MAX_TOKENS"
    chunks = chunks_of(upstream, contents=said(), generationConfig=config)
    assert reasons_of(chunks)[-1] == "MAX_TOKENS"
    assert chunks[-1]["usageMetadata"]["candidatesTokenCount"] == 2


def test_a_bound_that_the_thoughts_use_up_leaves_content_without_parts(upstream):
    config = {"maxOutputTokens": 2, "thinkingConfig": {"thinkingBudget": 100}}
    answer = ask(upstream, contents=said(), generationConfig=config)
    assert answer["candidates"] == [
        {"content": {"role": "model"}, "index": 0, "finishReason": "MAX_TOKENS"}
    ]
    usage = answer["usageMetadata"]
    assert (usage["candidatesTokenCount"], usage["thoughtsTokenCount"]) == (0, 2)
    [chunk] = chunks_of(upstream, contents=said(), generationConfig=config)
    assert chunk["candidates"] == answer["candidates"]


def test_stop_sequences(upstream):
    config = {"stopSequences": ["two"]}
    answer = ask(upstream, contents=said('text="one two three"'), generationConfig=config)
    [candidate] = answer["candidates"]
    assert candidate["content"]["parts"] == [{"text": "one "}]
    assert candidate["finishReason"] == "STOP"


@pytest.mark.parametrize(
    "wanted",
    [
        {"responseSchema": {"type": "OBJECT", "properties": {"n": {"type": "INTEGER"}}}},
        {"response_json_schema": {"type": "object", "properties": {"n": {"const": 7}}}},
    ],
)
def test_structured_answers(upstream, wanted):
    config = {"responseMimeType": "application/json", **wanted}
    answer = ask(upstream, contents=said(), generationConfig=config)
    assert json.loads(answer["candidates"][0]["content"]["parts"][0]["text"]) == {"n": 7}


@pytest.mark.parametrize("data", ["_-_-" * 300, "/+/+" * 300])
def test_images_are_seen(upstream, data):
    image = {"inline_data": {"mime_type": "image/png", "data": data}}
    contents = [{"role": "user", "parts": [image, {"text": "What is this?"}]}]
    answer = ask(upstream, contents=contents)
    assert "1 image" in answer["candidates"][0]["content"]["parts"][0]["text"]
    details = answer["usageMetadata"]["promptTokensDetails"]
    assert [entry["modality"] for entry in details] == ["TEXT", "IMAGE"]
    total = sum(entry["tokenCount"] for entry in details)
    assert total == answer["usageMetadata"]["promptTokenCount"]


def test_count_tokens(upstream):
    counted = post(upstream, "countTokens", {"contents": said()}).json()
    answer = ask(upstream, contents=said())
    assert counted["totalTokens"] == answer["usageMetadata"]["promptTokenCount"] > 0
    assert counted["promptTokensDetails"] == [
        {"modality": "TEXT", "tokenCount": counted["totalTokens"]}
    ]


# The stream as a JSON array.


def test_the_array_holds_what_the_stream_holds(upstream):
    answer = stream_text(upstream, alt="", contents=said("chunks=3 ping"))
    assert answer.headers["content-type"] == "application/json"
    array = answer.json()
    assert [chunk["candidates"][0]["content"]["parts"] for chunk in array] == [
        [{"text": f"{n} "}] for n in range(3)
    ]
    assert reasons_of(array) == [None, None, "STOP"]


def test_the_array_is_sent_piece_by_piece(upstream):
    url = f"{upstream.url}/v1/models/m:streamGenerateContent?alt=json"
    body = {"contents": said("chunks=2 stall=1")}
    with httpx2.stream("POST", url, json=body, headers=HEADERS, timeout=10) as answer:
        first = next(answer.iter_raw())
    assert first.startswith(b'[{"candidates"') and first.endswith(b"}")
    assert json.loads(first[1:])["modelVersion"] == "m"


@pytest.mark.parametrize(
    ("words", "elements", "closed"),
    [
        ("chunks=9 error_event=2", 3, True),
        ("chunks=9 error_event=0", 1, True),
        ("chunks=9 clean_end=2", 2, False),
        ("chunks=2 no_done", 2, False),
        ("chunks=2 clean_end=99", 2, True),
        ("chunks=2 comments", 2, True),
        ("chunks=2 crlf ping", 2, True),
        ("chunks=2 batch=9", 2, True),
        ("chunks=2 split=3", 2, True),
        ("chunks=2 gzip", 2, True),
    ],
)
def test_the_array_under_scripts(upstream, words, elements, closed):
    answer = stream_text(upstream, alt="", contents=said(words))
    assert answer.text.endswith("]") is closed
    array = json.loads(answer.text + ("" if closed else "]"))
    assert len(array) == elements
    assert ("error" in array[-1]) is ("error_event" in words)


def test_an_array_that_is_empty(upstream):
    assert stream_text(upstream, alt="", contents=said("clean_end=0")).text == ""


def test_an_array_with_garbage_is_no_json(upstream):
    with pytest.raises(ValueError):
        stream_text(upstream, alt="", contents=said("garbage=1")).json()


# Scripts of the stream of events.


@pytest.mark.parametrize(
    ("word", "counts"),
    [
        ("none", [None, None]),
        ("zero", [0, 0]),
        ("absurd", [1, 10**15]),
        ("repeated", [1, 2, 2]),
        ("cumulative", [1, 2]),
        ("finish_chunk", [None, 2]),
    ],
)
def test_usage_words(upstream, word, counts):
    chunks = chunks_of(upstream, contents=said(f"chunks=2 bytes=4 usage={word}"))
    usages = [chunk.get("usageMetadata", {}) for chunk in chunks]
    assert [usage.get("candidatesTokenCount") for usage in usages] == counts
    plain = ask(upstream, contents=said(f"chunks=2 bytes=4 usage={word}"))
    assert ("usageMetadata" in plain) is (word != "none")


def test_the_repeated_usage_comes_without_candidates(upstream):
    last = chunks_of(upstream, contents=said("usage=repeated"))[-1]
    assert "candidates" not in last and last["usageMetadata"]["totalTokenCount"] > 0


def test_pings_are_empty_lines(upstream):
    text = stream_text(upstream, contents=said("chunks=3 ping")).text
    frames = text.split("\r\n\r\n")
    assert frames.pop() == ""
    assert [frame.startswith("\r\ndata: ") for frame in frames] == [False, True, True]
    assert GenerateContent.ping == b"\r\n"


def test_line_ends(upstream):
    text = stream_text(upstream, contents=said("chunks=2 crlf")).text
    assert "\r\r" not in text and text.count("\r\n") == text.count("\n") == 4
    text = stream_text(upstream, contents=said("chunks=2 cr")).text
    assert "\n" not in text and text.count("\r") == 4


def test_garbage(upstream):
    frames = stream_text(upstream, contents=said("chunks=3 garbage=1")).text.split("\r\n\r\n")
    assert len(frames) == 5
    assert frames[1].startswith("data: {")
    with pytest.raises(ValueError):
        json.loads(frames[1].removeprefix("data: "))
    assert json.loads(frames[3].removeprefix("data: "))


@pytest.mark.parametrize("place", [0, 2])
def test_error_event(upstream, place):
    chunks = chunks_of(upstream, contents=said(f"error_event={place} message=Sorry"))
    assert len(chunks) == place + 1
    assert chunks[-1] == {"error": {"code": 503, "message": "Sorry", "status": "UNAVAILABLE"}}


# Models.


@pytest.mark.parametrize("version", ["v1", "v1beta"])
def test_models(upstream, version):
    url = f"{upstream.url}/{version}/models"
    listed = httpx2.get(url, headers=HEADERS).json()
    assert [model["name"] for model in listed["models"]] == [
        "models/demo-large",
        "models/demo-small",
    ]
    assert "nextPageToken" not in listed
    assert "countTokens" in listed["models"][1]["supportedGenerationMethods"]


def test_pages_of_models(upstream):
    url = f"{upstream.url}/v1beta/models"
    first = httpx2.get(f"{url}?pageSize=1", headers=HEADERS).json()
    assert len(first["models"]) == 1
    second = httpx2.get(f"{url}?pageToken={first['nextPageToken']}", headers=HEADERS).json()
    assert [model["name"] for model in second["models"]] == ["models/demo-small"]
    assert "nextPageToken" not in second
    for query in ("pageSize=x", "pageSize=-1", "pageToken=x", "limit=1"):
        assert httpx2.get(f"{url}?{query}", headers=HEADERS).status_code == 400


def test_the_path_of_models_that_families_share(upstream):
    bearer = {"authorization": "Bearer sk-up"}
    url = f"{upstream.url}/v1/models"
    assert "data" in httpx2.get(url, headers=bearer).json()
    assert "models" in httpx2.get(url, headers=HEADERS).json()
    assert "models" in httpx2.get(f"{url}?key=sk-up").json()
    messages = {"x-api-key": "sk-up", "anthropic-version": "2023-06-01"}
    assert "has_more" in httpx2.get(url, headers=messages).json()
    assert "models" in httpx2.get(f"{upstream.url}/v1beta/models", headers=bearer).json()


# Credentials and errors.


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"x-goog-api-key": "sk-up"}, ""),
        ({"authorization": "Bearer sk-up"}, ""),
        ({}, "?key=sk-up"),
        ({"x-goog-api-key": "sk-up"}, "?key=sk-bad"),
    ],
)
def test_keys_that_are_taken(upstream, headers, query):
    answer = post(upstream, "generateContent" + query, {"contents": said()}, headers)
    assert answer.status_code == 200


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({}, ""),
        ({"x-goog-api-key": ""}, ""),
        ({"authorization": "sk-up"}, ""),
        ({"x-api-key": "sk-up"}, ""),
    ],
)
def test_without_a_key(upstream, headers, query):
    answer = post(upstream, "generateContent" + query, {"contents": said()}, headers)
    assert (answer.status_code, error_of(answer)["status"]) == (403, "PERMISSION_DENIED")


@pytest.mark.parametrize(
    ("headers", "query"),
    [
        ({"x-goog-api-key": "sk-bad1"}, ""),
        ({"authorization": "Bearer sk-bad1"}, ""),
        ({}, "?key=sk-bad1"),
    ],
)
def test_a_key_that_is_refused(upstream, headers, query):
    answer = post(upstream, "generateContent" + query, {"contents": said()}, headers)
    error = error_of(answer)
    assert (answer.status_code, error["status"]) == (400, "INVALID_ARGUMENT")
    assert error["details"][0]["reason"] == "API_KEY_INVALID"


def test_an_unknown_field_is_named_with_its_place(upstream):
    body = {"contents": [{"parts": [{"texts": "hi"}]}]}
    error = error_of(post(upstream, "generateContent", body))
    assert (error["code"], error["status"]) == (400, "INVALID_ARGUMENT")
    description = (
        'Invalid JSON payload received. Unknown name "texts" at '
        "'contents[0].parts[0]': Cannot find field."
    )
    assert error["message"] == description
    assert error["details"] == [
        {
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "contents[0].parts[0]", "description": description}],
        }
    ]
    [detail] = error_of(post(upstream, "generateContent", {"foo": 1}))["details"]
    assert list(detail["fieldViolations"][0]) == ["description"]


def test_a_wrong_value_is_named_with_its_place(upstream):
    body = {"contents": said(), "generationConfig": {"topK": -1}}
    error = error_of(post(upstream, "generateContent", body))
    assert error["message"].startswith("* GenerateContentRequest.generation_config.top_k: ")
    assert "details" not in error


def test_rate_limits_say_when(upstream):
    answer = post(upstream, "generateContent", {"contents": said("status=429 retry_after=3")})
    error = error_of(answer)
    assert error["status"] == "RESOURCE_EXHAUSTED"
    assert error["details"] == [
        {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s"}
    ]
    assert answer.headers["retry-after"] == "3"


@pytest.mark.parametrize(
    ("status", "word"),
    [
        (400, "INVALID_ARGUMENT"),
        (401, "UNAUTHENTICATED"),
        (402, "FAILED_PRECONDITION"),
        (418, "INVALID_ARGUMENT"),
        (500, "INTERNAL"),
        (503, "UNAVAILABLE"),
        (504, "DEADLINE_EXCEEDED"),
    ],
)
def test_statuses(status, word):
    refusal = Refusal("Sorry", kind="plain", status=status)
    assert GenerateContent().refusal(refusal, "req_1") == {
        "error": {"code": status, "message": "Sorry", "status": word}
    }


def test_words_of_the_script_in_errors(upstream):
    words = "status=400 type=FAILED_PRECONDITION code=SOME_REASON message=Sorry"
    error = error_of(post(upstream, "generateContent", {"contents": said(words)}))
    assert (error["status"], error["message"]) == ("FAILED_PRECONDITION", "Sorry")
    assert error["details"][0]["reason"] == "SOME_REASON"


def test_paths_methods_and_content_types(upstream):
    base = f"{upstream.url}/v1beta/models/demo-large"
    answer = httpx2.post(f"{base}:embedContent", json={}, headers=HEADERS)
    assert (answer.status_code, error_of(answer)["status"]) == (404, "NOT_FOUND")
    answer = httpx2.get(f"{base}:generateContent", headers=HEADERS)
    assert (answer.status_code, error_of(answer)["status"]) == (405, "UNIMPLEMENTED")
    url = f"{base}:generateContent"
    answer = httpx2.post(url, content=b"{}", headers={**HEADERS, "content-type": "text/plain"})
    assert error_of(answer)["code"] == 400
    for action, words in (("generateContent?beta=true", ""), ("generateContent", "explode")):
        error = error_of(post(upstream, action, {"contents": said(words)}))
        assert error["code"] == 400
        assert (words or '"beta"') in error["message"]
