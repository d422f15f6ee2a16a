"""Refusals of the store, in the page's language."""

import ast
import re
from pathlib import Path

import pytest

from handlers.hub.web.refusals import beside, refusal_in_words
from handlers.hub.web.strings import strings

ROOT = Path(__file__).parents[4]
PARTS = ("store", "operations", "handlers/hub")
RAISED = {"Refused", "Conflict", "NotFound", "ValueError", "AmountError"}
SAMPLES = {
    **dict.fromkeys(("error", "fault", "message", "str(error)"), "is out of range"),
    **{"kind": "group", "name": "x1", "place": 'entry "x1"'},
    "FAULTS[fault]": "must not be the user's name",
}
UNKNOWN = "1"
NO_FORM = re.compile(
    r"(store/(db/(?!base_url)|copies/|upkeep/|money/(books|funds|leases)|calls/(?!reading/statement)"
    r"|values/(cipher|ids|times)|admin/document|catalog/(catalog|key_cache)|values/errors)"
    r"|operations/(explain|price_lists|price_sources|alerts/))"
)
"""Modules whose messages only commands and processes show."""
OTHERS = (
    # known by their code
    *("internal error", "unavailable", "to_day", "from_day", "1_day", "1_time"),
    # only in JSON
    *("each model needs upstream", "turns are a list", "compare needs since", "a JSON object"),
    # never shown
    "the cost of a call is negative",
)


@pytest.mark.parametrize(
    ("path", "fields", "text"),
    [
        ("/admin/users", {"name": "bob", "rpm": "many"}, "必须是整数"),
        ("/admin/users", {"name": "bob", "rpm": "-1"}, "必须在 0 与"),
        ("/admin/users", {"name": "alice"}, "alice 已存在"),
        ("/admin/users", {"name": "b" * 200}, "必须是 1 到 128 个可显示字符"),
        ("/admin/groups", {"name": "g", "multiplier": "x"}, "x 不是数字"),
        ("/admin/groups", {"name": "g", "models": "gpt-9"}, "没有模型 gpt-9"),
        ("/admin/users/alice/credit", {"amount": "ten", "kind": "credit"}, "ten 不是数字"),
        (
            "/keys/new",
            {"name": "k", "group": "default", "networks": "10.0.0.1/8"},
            "网段是 10.0.0.0/8",
        ),
        (
            "/alerts/destinations/new?of=gateway",
            {"kind": "webhook", "name": "n", "address": "x"},
            "必须是网址",
        ),
    ],
)
def test_a_refused_form_speaks_the_language_of_its_page(boss, path, fields, text):
    boss.cookies["language"] = "zh"
    boss.get("/account")
    answer = boss.send(path, [*fields.items()])
    assert answer.status in (400, 409) and text in answer.text, re.findall(
        "problem[^>]*>([^<]*)", answer.text
    )


def refusals():
    """Yield the messages of store/ and operations/ that a form can show, with sample values, by
    their place in the code."""
    for path in sorted(file for part in PARTS for file in ROOT.glob(f"{part}/**/*.py")):
        place = str(path.relative_to(ROOT))
        if not NO_FORM.match(place):
            module = ast.parse(path.read_text(encoding="utf-8"))
            constants = [node for node in module.body if isinstance(node, ast.Assign)]
            scopes = [node for node in ast.walk(module) if isinstance(node, ast.FunctionDef)]
            for scope in (*scopes, module):
                nodes = ast.walk(scope) if scope is not module else module.body
                for message in (text for node in nodes for text in _messages_of(node)):
                    for text in _texts(message, (scope, *constants)):
                        if text not in ("", UNKNOWN):
                            yield f"{place}:{message.lineno}", text


def _messages_of(node):
    """Yield the expressions of messages in a statement that raises, or adds to faults."""
    if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
        if getattr(node.exc.func, "id", "") in RAISED and node.exc.args:
            first = node.exc.args[0]
            yield from first.elts if isinstance(first, ast.List) else [first]
    elif isinstance(node, ast.Call) and getattr(node.func, "attr", "") == "fault":
        yield node.args[-1]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "invalid":
        yield node.args[1]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Failure":
        yield node.args[2]
    elif isinstance(node, ast.Call) and ast.unparse(node.func) == "faults.append":
        yield node.args[0]
    elif isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("_checked", "list_of"):
        yield from node.args[1:2]
    elif isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("faults["):
        yield node.value


def _texts(expression, scopes):
    """Return the texts that an expression can produce."""
    if isinstance(expression, ast.Constant) and isinstance(expression.value, str):
        return [expression.value]
    if isinstance(expression, ast.JoinedStr):
        texts = [""]
        for part in expression.values:
            more = _texts(part, scopes) or ["x1"]
            texts = [text + end for text in texts for end in more]
        return texts
    if isinstance(expression, ast.BinOp):
        left, right = _texts(expression.left, scopes), _texts(expression.right, scopes)
        return [start + end for start in left for end in right]
    if isinstance(expression, ast.IfExp):
        return [*_texts(expression.body, scopes), *_texts(expression.orelse, scopes)]
    if isinstance(expression, ast.BoolOp):
        return _texts(expression.values[-1], scopes)
    if isinstance(expression, ast.FormattedValue):
        texts = _texts(expression.value, scopes)
        return [f"'{text}'" for text in texts] if expression.conversion == ord("r") else texts
    if isinstance(expression, ast.Subscript) and "words" in ast.unparse(expression.value):
        return []  # in the page's language already
    return _texts_of_value(ast.unparse(expression), scopes)


def _texts_of_value(name, scopes):
    """Return the texts that a value can have: those assigned to it, otherwise a sample."""
    if name.startswith("nearest(") or name == "hint":
        return ["", '; did you mean "x2"?']
    if name.endswith(("where", "where()")) or name.startswith("label("):
        return ['channel "x1"']
    if name.startswith("_place(") or ".fault(" in name:
        return [""]
    assigned = [
        text
        for scope in scopes
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
        for text in _texts(node.value, scopes)
    ]
    return assigned or [SAMPLES.get(name, UNKNOWN)]


def test_each_refusal_that_a_form_can_show_has_a_sentence():
    words = strings("zh")
    messages = {text: place for place, text in refusals()}
    assert len(messages) > 150
    english = [
        f"{place}: {text}"
        for text, place in messages.items()
        if not text.startswith(OTHERS) and refusal_in_words(words, text).isascii()
    ]
    assert not english, "\n".join(english)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (
            'channel "main": base_url: must not contain spaces or backslashes',
            "{base_url}：不能有空格或反斜杠",
        ),
        (
            'there is no group "gropu"; did you mean "group"?; rpm must be a whole number',
            "没有分组 gropu；是否指 group？；{rpm}必须是整数",
        ),
        (
            'body: set: "model.x": model is set by the gateway',
            "{body}：set：“model.x”：model 由网关设置",
        ),
        ("the moon is out", "the moon is out"),
    ],
)
def test_parts_of_a_refusal_are_translated_each(message, text):
    words = strings("zh")
    labels = {name: words[f"admin.f_{name}"] for name in ("rpm", "body", "base_url")}
    assert refusal_in_words(words, message) == text.format(**labels)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("no key has this secret", "No key has this secret"),
        ('user "bob": must be a whole number', "Must be a whole number"),
        ('"gpt" is a member; choose another name', '"gpt" is a member; choose another name'),
    ],
)
def test_a_refusal_begins_as_a_sentence(message, text):
    assert refusal_in_words(strings("en"), message) == text


def test_beside_its_field_a_refusal_does_not_name_it():
    message = 'user "bob": rpm: must be a whole number'
    assert beside("rpm", message) == "must be a whole number"
    assert beside("tpm", message) == message
