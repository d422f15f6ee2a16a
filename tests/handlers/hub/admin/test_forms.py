"""What a form shows is what it sends back: saving an untouched form changes nothing."""

import html
import re

import pytest

from store.admin.export import show
from tests.handlers.hub.admin.script import CHANNEL, MODEL


def sent_by(page):
    """The fields that a browser would send from the first form that has a Save button."""
    form = next(one for one in re.findall(r"<form.*?</form>", page, re.S) if ">Save<" in one)
    found = []
    for tag in re.findall(r"<input\b[^>]*>", form):
        fields = dict(re.findall(r'([\w.-]+)="([^"]*)"', tag))
        if fields.get("type") == "checkbox" and " checked" not in tag:
            continue
        if fields.get("name", "_xsrf") != "_xsrf":
            found.append((fields["name"], html.unescape(fields.get("value", ""))))
    for name, text in re.findall(
        r'<textarea[^>]*name="([\w.]+)"[^>]*>\n(.*?)</textarea>', form, re.S
    ):
        found.append((name, html.unescape(text).replace("\n", "\r\n")))
    for name, options in re.findall(r'<select[^>]*name="(\w+)"[^>]*>(.*?)</select>', form, re.S):
        found += [(name, one) for one in re.findall(r'value="([^"]*)" selected', options)]
    return found


KINDS = {
    "users": ("user", {"name": "carol", "password": "a long password", "rpm": 5, "groups": []}),
    "groups": ("group", {"name": "one, two", "models": ["gpt-4.1"], "entries": ["messages"]}),
    "models": ("model", {**MODEL, "name": "a/b", "context_tokens": 1000}),
    "plans": ("plan", {"name": "m", "quota": "20.5", "window": "week", "enabled": False}),
    "channels": (
        "channel",
        {
            **CHANNEL,
            "models": {"gpt-4.1": "gpt-4.1"},
            "extra_headers": {"x-org": "secret"},
            "proxy": "http://user:pw@127.0.0.1:3128",
            "options": {"images": True, "max_budget_tokens": 1, "efforts": ["low", "high"]},
            "weight": 3,
            "draining": True,
        },
    ),
}


@pytest.mark.parametrize("plural", KINDS)
def test_saving_an_untouched_form_changes_nothing(boss, api, db, plural):
    kind, body = KINDS[plural]
    api.call("POST", "/api/admin/models", MODEL)
    made = api.call("POST", f"/api/admin/{plural}", body)
    assert made.status == 201, made.text
    before = show(db, kind, body["name"])
    name = body["name"].replace("/", "%2F").replace(",", "%2C").replace(" ", "%20")
    place = f"/admin/{plural}/{name}" + ("/edit" if kind == "channel" else "")
    fields = sent_by(boss.get(place).text)
    assert len(fields) >= 3
    assert boss.send(place, fields).status == 303
    assert show(db, kind, body["name"]) == before
    lines = api.listed(f"/api/admin/audit?kind={kind}")
    assert [one["action"] for one in lines if one["name"] == body["name"]] == ["create"]
