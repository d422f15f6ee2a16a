"""Refusals of the store, in the page's language."""

import re

import pytest

from handlers.hub.web.refusals import _FORMS, refusal_in_words
from handlers.hub.web.strings import strings


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("/admin/users", {"name": "bob", "rpm": "many"}, "必须是整数"),
        ("/admin/users", {"name": "bob", "rpm": "-1"}, "必须在 0 与"),
        ("/admin/users", {"name": "alice"}, "alice 已存在"),
        ("/admin/users", {"name": "b" * 200}, "必须是 1 到 128 个可显示字符"),
        ("/admin/groups", {"name": "g", "multiplier": "x"}, "x 不是数字"),
        ("/admin/users/alice/credit", {"amount": "ten", "kind": "credit"}, "ten 不是数字"),
    ],
)
def test_a_refused_form_speaks_the_language_of_its_page(boss, path, fields, text):
    boss.cookies["language"] = "zh"
    boss.get("/account")
    answer = boss.send(path, [*fields.items()])
    assert answer.status in (400, 409) and text in answer.text, re.findall(
        "problem[^>]*>([^<]*)", answer.text
    )


def test_each_sentence_has_its_words_and_others_stay():
    for language in ("en", "zh"):
        assert all(f"refused.{name}" in strings(language) for name in _FORMS)
        assert refusal_in_words(strings(language), "the moon is out") == "the moon is out"
