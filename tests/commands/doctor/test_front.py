"""Assessment of a stream's arrival times, and of addresses with a superfluous path."""

import pytest

from commands.doctor.front import Arrivals, doubled_path, judge, without_endpoint

EVENTS = 20


def judged(at_s, cut=""):
    [finding] = judge(Arrivals(expected=EVENTS, at_s=at_s, cut=cut))
    return finding


@pytest.mark.parametrize(
    ("at_s", "state", "message"),
    [
        ([0.05 + n / 10 for n in range(EVENTS)], "ok", ""),
        # a busy machine does not look like a buffering proxy
        ([0.05 + n / 10 + (0.08 if n % 4 == 0 else 0) for n in range(EVENTS)], "ok", ""),
        ([2.0] * EVENTS, "failed", "buffered"),
        ([0.05 + n // 4 * 0.4 for n in range(EVENTS)], "warning", "5 bundles"),
    ],
)
def test_arrivals_that_are_whole(at_s, state, message):
    finding = judged(at_s)
    assert finding.state == state and message in finding.message
    assert state != "failed" or "proxy_buffering off" in finding.remedy


@pytest.mark.parametrize(("count", "cut"), [(7, "the connection was closed"), (7, ""), (0, "x")])
def test_what_is_missing_was_cut(count, cut):
    finding = judged([n / 10 for n in range(count)], cut)
    assert finding.state == "failed" and f"after {count} of {EVENTS}" in finding.message
    assert "proxy_read_timeout" in finding.remedy


@pytest.mark.parametrize(
    ("url", "right"),
    [
        ("https://gw.example", "https://gw.example"),
        ("https://gw.example/", "https://gw.example"),
        ("https://gw.example/v1", "https://gw.example"),
        ("https://gw.example/v1/", "https://gw.example"),
        ("https://gw.example/llm/v1/chat/completions", "https://gw.example/llm"),
        ("https://gw.example/v1/messages", "https://gw.example"),
        ("https://gw.example/v1beta/models/tea:generateContent", "https://gw.example"),
    ],
)
def test_what_clients_append_is_left_out(url, right):
    assert without_endpoint(url) == right


def test_what_is_doubled_is_named():
    assert "ends with /v1/messages," in doubled_path("--url", "https://gw.example/v1/messages")
