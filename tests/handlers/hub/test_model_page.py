"""Models: the list with its filters, the page of one, and the JSON of both."""

import re

import pytest

from store.calls.rate_sums import UsageByRate
from store.channels.status_sums import fold
from store.db.database import database_ms
from store.values.ids import DAY_MS, day_at
from tests.handlers.hub.overview_world import book, call, edit, text_of
from tests.handlers.hub.test_status import LESS, RATES

pytestmark = pytest.mark.usefixtures("world")
FACTS = """
[[model]]
name = "gpt-5"
context_tokens = 400000
max_output_tokens = 128000
[[group]]
name = "coding"
features = ["*", "-mcp", "-maps"]
[[key]]
user = "alice"
name = "laptop"
group = "coding"
"""


@pytest.fixture
def priced(db, tmp_path):
    edit(db, tmp_path, RATES)
    edit(db, tmp_path, FACTS)


def test_the_list_leads_to_the_page_and_to_a_try(alice, priced):
    answer = alice.get("/models?group=coding")
    assert 'href="/models/gpt-5?group=coding"><code>gpt-5</code>' in answer.text
    assert re.search(r'href="/try\?key=\w+&amp;model=gpt-5"', answer.text)
    assert "text, image, PDF 400 k 1.000 8.000 0.100 +2" in text_of(answer)
    assert text_of(alice.get("/status?group=coding")).count("Try it") > 1
    # without a key of the group there is no "Try it"
    row = alice.get("/models?group=default").text.partition("<tbody>")[2].partition("</tr>")[0]
    assert "/try?" not in row and 'href="/keys/new?group=default"' in row


@pytest.mark.parametrize(
    ("query", "models"),
    [
        ("takes=pdf", ["gpt-5", "gpt-5-mini"]),
        ("takes=audio", []),
        ("context=400k", ["gpt-5"]),
        ("context=1m", []),
        ("takes=image&context=128k&text=GPT", ["gpt-5"]),
    ],
)
def test_models_are_narrowed_by_content_and_context(alice, priced, query, models):
    answer = alice.get(f"/api/models?group=coding&{query}").json
    assert [row["model"] for row in answer["items"]] == models
    page = alice.get(f"/models?group=coding&{query}").text
    assert re.findall(r'class="name model"><a [^>]*><code>([^<]*)', page) == models


def test_the_json_of_models_goes_page_by_page(alice, db, tmp_path):
    edit(db, tmp_path, LESS)
    first = alice.get("/api/models?group=coding&limit=1").json
    assert (first["group"], first["next"]) == ({"name": "coding", "multiplier": "0.8"}, "gpt-5")
    second = alice.get("/api/models?group=coding&limit=1&after=gpt-5").json
    [row] = second["items"]
    assert (row["model"], row["state"], second["next"]) == ("gpt-5-mini", "not_offered", None)
    assert row["why"]["elsewhere"] == ["default"]
    for query in ("takes=smell", "context=7", "state=asleep", "limit=201"):
        answer = alice.get(f"/api/models?{query}")
        assert (answer.status, answer.json["error"]["field"]) == (400, query.partition("=")[0])


def test_a_page_has_each_rate_with_its_share_of_calls(alice, db, priced):
    row = {"day": day_at(database_ms(db)), "model": "gpt-5", "cost_nanos": 1}
    for rate, meter, calls, uses in (
        ("", "", 90, 0),
        ("tier=flex", "", 10, 0),
        ("", "code_interpreter", 3, 5),
        ("", "web_search", 1, 1),  # has a price by now
    ):
        UsageByRate.insert(
            {**row, "rate": rate, "meter": meter, "calls": calls, "uses": uses}
        ).execute(db)
    UsageByRate.insert(
        {**row, "day": day_at(database_ms(db) - 31 * DAY_MS), "rate": "", "calls": 999}
    ).execute(db)
    text = text_of(alice.get("/models/gpt-5?group=coding"))
    for line in (
        "plain 1.000 0.100 1.000 8.000 90.0",
        "tier flex 0.500 0.050 0.500 4.000 10.0",
        "input over 272,000 2.000 2.000 2.000 12.000 0.0",
        "Image output input over 272,000 a million tokens 48",
        "Web search per use 0.008",
        "Code execution no price yet: served, not charged",
        "refused in group coding (403)",
        "400 k tokens answer up to 128,000",
        "Chat completions /v1/chat/completions native …/v1",
        "coding ×0.8 Available 1.00 8.00 Create a key",
        "gpt-5-mini Available 0.20 1.60",
    ):
        assert line in text, (line, text)
    assert "hidden" not in text  # a group of other users
    plain = alice.get("/api/models/gpt-5?group=coding").json
    assert (plain["plain_share"], [rate["share"] for rate in plain["rates"]]) == (0.9, [0.1, 0.0])
    assert plain["unpriced"] == ["code_interpreter"] and "mcp" in plain["refused_features"]
    assert [one["model"] for one in plain["like"]] == ["gpt-5-mini"]


def test_a_page_has_the_figures_of_each_day_and_the_own_calls(alice, db):
    book(db, *(call(db, ttft_ms=400) for _ in range(20)), call(db, outcome="upstream_error"))
    book(db, call(db, user="carol"), call(db, ago_ms=2 * DAY_MS))
    while fold(db, database_ms(db) // 1000):
        pass
    plain = alice.get("/api/models/gpt-5?group=coding").json
    assert plain["days"]["ok"][-3:] == [1, 0, 21] and plain["days"]["failed"][-1] == 1
    p50, p95 = plain["first_bytes"][-1]
    assert 200 < p50 <= p95 < 600 and plain["first_bytes"][-3] == [None, None]
    assert plain["yours"] == {"calls": 22, "cost": "2.2"}
    text = text_of(alice.get("/models/gpt-5?group=coding"))
    assert "2.2000 USD 22 calls" in text and "1 of 23 calls failed" in text


@pytest.mark.parametrize(
    ("use", "line"),
    [
        ("python", "client.chat.completions.create("),
        ("curl", "/v1/chat/completions"),
        ("javascript", 'import OpenAI from "openai"'),
        ("codex", 'model_provider = "sluice"'),
        ("nothing", "curl -N"),  # the first one
    ],
)
def test_snippets_call_the_model(alice, use, line):
    page = alice.get(f"/models/gpt-5?group=coding&use={use}").text
    snippet = re.search(r'<pre tabindex="0" id="use-it">(.*?)</pre>', page, re.S)[1]
    assert line in re.sub(r"<[^>]*>", "", snippet).replace("&quot;", '"') and "gpt-5" in snippet


def test_a_name_that_no_group_of_the_user_has(alice, carol, db, tmp_path):
    answer = alice.get("/models/gpt-6")
    assert answer.status == 404 and "There is no model named gpt-6" in text_of(answer)
    assert 'href="/models/gpt-5"' in answer.text
    assert alice.get("/api/models/gpt-6").json["error"]["message"].endswith("nearest: gpt-5")
    assert alice.get("/models/gpt-5?group=hidden").status == 404
    edit(db, tmp_path, LESS)
    text = text_of(alice.get("/models/gpt-5-mini?group=coding"))
    assert "Not in coding." in text and "In default at ×1: in 0.250, out 2.000." in text
    assert alice.get("/api/models/gpt-5-mini").json["group"]["name"] == "default"


def test_only_administrators_see_channels_in_a_reason(alice, boss, db):
    book(db, *(call(db, outcome="upstream_error") for _ in range(4)))
    for path in ("/models?group=coding", "/models/gpt-5?group=coding"):
        assert "Down: secret-account." in text_of(boss.get(path))
        shown = alice.get(path).text
        assert "Down in coding since" in text_of(alice.get(path)) and "secret-account" not in shown
