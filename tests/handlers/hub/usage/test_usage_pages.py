"""The pages of usage without scripts: what they show to whom; the filters are in the URL."""

import html
import json
import re
from typing import get_args

import pytest

from adapters.faults import CODES, Condition, Fault
from handlers.hub.usage.usage_call import attempt_details, attempt_lanes, flow_path
from handlers.hub.web.formats import failure_reason
from handlers.hub.web.strings import LANGUAGES, strings
from handlers.relay.upstream.request import UpstreamErrorKind
from store.calls.reading import usage_page
from store.calls.usage_queries import Filters, history
from store.values.usage import Served, Usage
from store.values.usage_record import OUTCOMES, AttemptRecord, OtherCost, Receipt
from tests.handlers.hub.browser import Browser
from tests.handlers.hub.usage.calls import FAILED, call, failed, put

WORDS_MAX_CHARS = 40


def rows(answer):
    assert answer.status == 200, answer.text[:500]
    return re.findall(r'<tr class="row[^"]*" data-id="(\w+)"', answer.text)


def figure(answer, label):
    found = re.search(rf'>{label}</span><span class="figure[^>]*>([^<]*)', answer.text)
    return html.unescape(found[1]).strip()


def test_the_list_shows_own_calls_with_their_reason(db, alice):
    good, bad = put(db, call(db, 1), failed(db, 2, minutes_ago=2))
    put(db, call(db, 3, "boss"))
    page = alice.get("/usage")
    assert rows(page) == [bad, good]
    assert "All channels are rate limited" in page.text and "laptop" in page.text
    assert "own words" not in page.text and ">main<" not in page.text
    # of the cost: 100 × 2 + 50 × 8, a millionth each, halved
    figures = [figure(page, label) for label in ("Calls", "Success", "Cost")]
    assert figures == ["2", "50.00", "0.0003"]
    page = alice.get("/usage?hide=endpoint,in,cached")
    assert 'class="c-endpoint"' not in page.text and 'class="c-why" colspan="2"' in page.text
    put(db, *[call(db, number, ttft_ms=500) for number in range(4, 34)])
    for query in ("chart=calls", "chart=tokens", "chart=cost", "chart=first_byte", "since=30d"):
        page = alice.get(f"/usage?{query}")
        assert 'class="fill-c' in page.text and figure(page, "First byte, p50") == "0.50"


def test_filters_are_the_address_and_can_be_removed(db, alice, boss):
    put(db, call(db, 1), failed(db, 2))
    page = alice.get("/usage?since=7d&error_code=upstream_rate_limited&text=rate")
    assert len(rows(page)) == 1
    hrefs = re.findall(r'class="remove"[^>]*href="([^"]*)"', page.text)
    assert hrefs == ["/usage?text=rate&amp;since=7d"]
    query = "error_code=upstream_rate_limited&amp;text=rate&amp;since=7d"
    assert f"/api/usage/export?{query}" in page.text
    assert rows(alice.get("/usage?outcome=ok,client_gone")) == rows(alice.get("/usage?outcome=ok"))
    empty = alice.get("/usage?model=none")
    assert "No calls match" in empty.text and rows(empty) == []
    assert alice.get("/usage?group=nowhere").status == 400
    assert "No calls yet" in boss.get("/usage").text
    put(db, call(db, 3, "boss", minutes_ago=60 * 40))
    page = boss.get("/usage")
    assert "No calls in this span" in page.text
    before = html.unescape(re.search(r'class="button" data-soft href="([^"]*)"', page.text)[1])
    assert len(rows(boss.get(before))) == 1


def test_pages_follow_each_other(db, alice, monkeypatch):
    monkeypatch.setattr("handlers.hub.usage.usage.PAGE_ROWS", 3)
    monkeypatch.setattr("handlers.hub.usage.usage.MORE_ROWS", 4)
    made = put(db, *[call(db, number) for number in range(9)])
    page = alice.get("/usage")
    found = rows(page)
    while more := re.search(r'data-append href="([^"]*)"', page.text):
        page = alice.get(html.unescape(more[1]))
        found += rows(page)
    assert found == sorted(made, reverse=True)


def test_an_administrator_sees_everybodys_calls_on_a_page_of_its_own(db, alice, boss):
    put(db, call(db, 1), call(db, 2, "boss"))
    assert len(rows(boss.get("/usage"))) == 1
    page = boss.get("/admin/usage")
    assert len(rows(page)) == 2 and 'class="c-channel"><span>main' in page.text
    assert len(rows(boss.get("/admin/usage?user=alice&channel=main"))) == 1
    assert alice.get("/admin/usage").status == 404
    assert alice.get("/admin/usage/tail").status == 404
    # The API gives administrators the calls of all users, so the export of the own page names the
    # user.
    assert "export?since=24h&amp;user=boss" in boss.get("/usage").text


def test_what_cannot_be_summed_up_is_not_made_up(db, alice, monkeypatch):
    put(db, call(db, 1), call(db, 2, "boss"))
    assert figure(alice.get("/usage?status=200&since=30d"), "Calls") == "1"
    monkeypatch.setattr(usage_page, "READ_AT_MOST", 0)
    assert figure(alice.get("/usage?outcome=ok&since=30d"), "Calls") == "1"
    page = alice.get("/usage?status=200&since=30d")
    assert figure(page, "Calls") == "–" and len(rows(page)) == 1
    assert figure(page, "First byte, p50") == "–"


def test_one_call_shows_its_cost_line_by_line(db, alice, boss):
    [good] = put(db, call(db, 1, upstream_nanos=123_456))
    page, of_boss = alice.get(f"/usage/{good}"), boss.get(f"/usage/{good}")
    assert 'href="/try?model=gpt-4.1&amp;key=key-of-alice"' in page.text
    assert 'href="/try?model=gpt-4.1"' in of_boss.text  # not with a key of hers
    for text in ("0.0002<", "0.0004<", "0.0006<", "× 0.5", "0.0003", "agent/1", "attempt 1"):
        assert text in page.text, text
    links = ('href="/admin/users/alice"', 'href="/admin/channels/main"', "key_id=key-of-alice")
    for text in ("req_1", "web-1", ">main", "0.000123456", "58.8 %", *links):
        assert text not in page.text and text in of_boss.text, text


RECEIPT = Receipt(
    rate="*0.5 input=2 output=8 web_search=0.01 audio_second=0.001 ?tier=flex ?input_over=50",
    served=Served(tier="flex", geo="us"),
    unpriced=(("web_fetch", 2), ("geo", 1), ("tier.ultrafast", 1), ("output_image", 3)),
    other_models=(OtherCost("helper", Usage(823, 1612), "0.0444"),),
)
MORE = (("output_image", 3), ("web_search", 9), ("web_fetch", 2), ("audio_second", 12_345))
NO_PRICE = " No price of its own"


def test_a_cost_has_its_rate_and_a_line_for_each_meter_and_model(db, alice):
    [made] = put(db, call(db, 1, more=MORE, receipt=RECEIPT))
    page = re.sub(r"<svg.*?</svg>", "", alice.get(f"/usage/{made}").text, flags=re.S)
    assert "Rate: tier flex, input over 50. Served: tier flex, region us." in page
    table = re.search(r'<table class="cost">.*?</table>', page, re.S)[0]
    lines = [re.findall(r"<td.*?</td>", line) for line in table.split("<tr")[1:]]
    texts = [[" ".join(re.sub(r"<[^>]+>", " ", cell).split()) for cell in line] for line in lines]
    assert texts[:-2] == [
        ["Input", "100", "× 1", "0.000100"],
        ["Output", "50", "× 4", "0.000200"],
        ["Image output" + NO_PRICE, "3", "× 4", "0.000012"],
        ["Web search per use", "9", "× 0.01", "0.090000"],
        ["Web fetch per use" + NO_PRICE, "2", "", "0.000000"],
        ["Audio per second", "12.345", "× 0.001", "0.012345"],
        ["helper Input 823, Output 1,612", "2,435", "", "0.044400"],
        ["Region" + NO_PRICE, "1", "", "0"],
        ["Tier ultrafast" + NO_PRICE, "1", "", "0"],
        ["Sum", "", "", "0.147057"],
        ["Group default", "", "× 0.5", ""],
    ]


def test_one_failed_call_says_what_to_do(db, alice, boss):
    script = "<script>alert(1)</script>"
    names = dict.fromkeys(("model", "user_agent", "key_name", "client_request_id"), script)
    bad, odd = put(db, failed(db, 1), failed(db, 2, error_message=script, **names))
    page = alice.get(f"/usage/{bad}").text
    for text in ("All channels are rate limited", "2 of your calls", "Nothing was charged"):
        assert text in page, text
    assert "own words" not in page and "own words" in boss.get(f"/usage/{bad}").text
    for path in ("/usage", f"/usage/{odd}"):
        assert script not in alice.get(path).text
    assert Browser(alice.port).get(f"/usage/{bad}").status == 303
    [hers] = put(db, call(db, 3, "boss"))
    assert alice.get(f"/usage/{hers}").status == 404


LACKING = (
    "The wallet balance does not cover this call: 0.001 USD is left, and it needs at least"
    " 0.0043 USD. Add balance in the API Hub."
)


def test_a_call_without_enough_money_says_what_was_left_and_links_the_wallet(db, alice, boss):
    said = {"outcome": "refused", "error_code": "insufficient_quota", "error_message": LACKING}
    [poor] = put(db, failed(db, 1, attempts=(), **said))
    words = "too little money: 0.001 USD is left, 0.0043 USD is needed"
    notice = re.compile(words + r".*?</section>", re.DOTALL)
    for browser, linked in ((alice, True), (boss, False)):  # the wallet page shows only one's own
        page = browser.get(f"/usage/{poor}")
        assert ('href="/wallet"' in notice.search(page.text)[0]) == linked
        assert LACKING in page.text
    assert words in alice.get("/usage").text


def test_attempts_lie_one_after_the_other(db):
    attempts = (FAILED, AttemptRecord("spare", None, "connect", 40), AttemptRecord("last", 200))
    put(db, call(db, 1, attempts=attempts, duration_ms=1_000))
    [row] = history(db, Filters(), 1)
    words = strings("en")
    made = attempt_lanes(row, words, admin=True)
    assert [(one.name, one.begin, one.end, one.shape) for one in made] == [
        ("main", 0.0, 21.0, "bad"),
        ("spare", 21.0, 25.0, "bad"),
        ("last", 25.0, 100.0, "ok"),
    ]
    assert made[0].label == "429 after 0.21 s" and made[2].label == "200, complete"
    assert attempt_lanes(row, words, admin=False)[0].name == "attempt 1"
    assert flow_path(made).startswith("M0 26H210.0C224.0 26 217.0 62 238.0 62H250.0")
    assert usage_page.CallSums().first_byte(50) is None


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_code_and_outcome_has_short_words(language):
    words = strings(language)
    codes = {*CODES.values(), "client_gone", "gateway_lost", "upstream_truncated", "drained"}
    for name in (*codes, *(f"outcome_{one}" for one in OUTCOMES)):
        assert 0 < len(words[f"codes.{name}"]) <= WORDS_MAX_CHARS, name
    limited = "rate_limit_exceeded"
    assert "3" in failure_reason(words, limited, "Rate limit reached. Try again in 3s.")
    assert failure_reason(words, limited, None) == words[f"codes.{limited}"]
    assert failure_reason(words, None, None) is None
    assert failure_reason(words, "other", None) == "other"


def test_a_search_that_takes_long_goes_on_with_a_link(db, alice, monkeypatch):
    monkeypatch.setattr(usage_page, "SEARCH_S", -1)
    old, new = put(db, failed(db, 1, minutes_ago=300), failed(db, 2, minutes_ago=2))
    page = alice.get("/usage?error_code=upstream_rate_limited")
    assert rows(page) == [new] and "Searched back to" in page.text
    more = re.search(r'data-searching="49" href="([^"]*)"', page.text)
    page = alice.get(html.unescape(more[1]))
    assert rows(page) == [old] and "data-append" not in page.text


def test_the_dearest_and_the_longest_calls_come_first(db, alice, monkeypatch):
    calls = ((300, 30), (9_000, 10), (40, 20))
    records = [
        call(db, number, duration_ms=ms, output_tokens=tokens)
        for number, (ms, tokens) in enumerate(calls)
    ]
    made = put(db, *records)
    page = alice.get("/usage?sort=duration")
    assert rows(page) == [made[1], made[0], made[2]] and "data-tail" not in page.text
    assert rows(alice.get("/usage?sort=cost")) == [made[0], made[2], made[1]]
    monkeypatch.setattr(usage_page, "SORTED_AT_MOST", 2)
    page = alice.get("/usage?sort=cost")
    assert rows(page) == sorted(made, reverse=True)
    assert "Sorting works for" in page.text


def test_why_an_attempt_failed_has_words_for_every_way():
    """Both for connections and for the faults of an upstream."""
    codes = [CODES[one] for one in Condition if Fault(one).blame == "upstream"]
    words = strings("en")  # all languages have the same
    reasons = {text for name, text in words.items() if name.startswith("usage.tried_")}
    for error in (*get_args(UpstreamErrorKind), *codes, "channel_misconfigured"):
        attempts = json.dumps([{"channel": "x", "error": error}, {"channel": "y"}])
        row = {"attempts": attempts, "outcome": "ok", "error_code": None}
        first, second = attempt_details(row, words)
        assert first in reasons and second == ""


def test_the_last_attempt_says_what_the_caller_was_told(db, alice, boss):
    code = "upstream_invalid_request"
    limited = AttemptRecord("main", 429, "upstream_rate_limited", 90, "org-1 is late")
    refused = AttemptRecord("main", 400, code, 90, "vendor: bad field of org-1")
    facts = {"status": 400, "error_code": code, "error_message": "Unknown field 'x'."}
    facts |= {"trace_id": "0af7651916cd43dd8448eb211c80319c"}
    made, _ = put(db, failed(db, 1, attempts=(limited, refused), **facts), call(db, 2))
    page = alice.get(f"/usage/{made}").text
    assert "accepts no more calls for a while" in page and "org-1" not in page
    attempts = alice.get(f"/api/usage/{made}").json["attempts"]
    details = ["The upstream accepts no more calls for a while", "Unknown field 'x'."]
    assert [attempt["detail"] for attempt in attempts] == details
    assert "org-1 is late" in boss.get(f"/usage/{made}").text
    [link] = re.findall(r'href="(/usage\?trace_id=[^"]*)"', page)
    assert rows(alice.get(html.unescape(link))) == [made]
