"""The sender with a real mail server and real webhooks: what arrives, what is refused, and why."""

import hashlib
import hmac
import json
import re
from dataclasses import replace

import pytest

from conf.settings import MailSettings
from operations.alerts import messages, smtp
from operations.alerts.sender import NO_ADDRESS, NO_MAIL, Sender
from store.alerts import destinations, outbox
from store.alerts.destinations import Address
from store.alerts.outbox import Message
from store.alerts.rules import GATEWAY
from store.db.database import discard, execute, open_database, transaction
from store.values.cipher import Cipher
from store.values.errors import Refused
from tests.support.receivers import MailServer, Webhook
from tests.support.stores import sqlite_store
from tests.support.users import add_user

CIPHER = Cipher(["a key of the tests"])
HUB = "https://hub.example.com"
LINK = "/admin/channels/moonshot"


@pytest.fixture
def db(tmp_path):
    db = open_database(sqlite_store(tmp_path / "sluice.db"))
    yield db
    discard(db)


@pytest.fixture
def webhook():
    with Webhook() as made:
        yield made


@pytest.fixture
def mail_server():
    with MailServer() as made:
        yield made


def make_sender(mail_url=""):
    return Sender(MailSettings(url=mail_url, sender="sluice@example.com"), HUB, CIPHER)


def message(destination_id="", owner_id=GATEWAY, user_id=""):
    return Message(
        **{"id": "01KB2Q7M3V0000000000000000", "owner_id": owner_id, "rule_id": "r"},
        **{"kind": "channel_down", "state": "firing", "since_ms": 1_795_784_280_000},
        **{"made_ms": 0, "object": {"channel": "moonshot"}, "text": "Channel moonshot is down"},
        **{"link": LINK, "destination_id": destination_id, "user_id": user_id, "receiver": "x"},
        **{"status": outbox.WAITING, "tries": 0, "result": "", "took_ms": None},
    )


def destination(db, url, kind="webhook", owner_id=GATEWAY, **fields):
    fields = {"name": "ops", "kind": kind, "address": url, **fields}
    return destinations.create(db, owner_id, fields, CIPHER, "nadia")


def test_a_webhook_gets_a_signed_document(db, webhook):
    place, secret = destination(db, webhook.url)
    result = make_sender().send(db, message(place))
    assert result.ok and result.text == "200" and result.took_ms is not None
    ((headers, body),) = webhook.received
    assert json.loads(body) == {
        **{"id": "01KB2Q7M3V0000000000000000", "rule": "channel_down", "state": "firing"},
        **{"since": "2026-11-27T12:58:00.000Z", "object": {"channel": "moonshot"}},
        **{"text": "Channel moonshot is down", "link": HUB + LINK},
    }
    match = re.fullmatch(r"t=(\d+),v1=([0-9a-f]{64})", headers["Sluice-Signature"])
    signed = match[1].encode() + b"." + body
    assert match[2] == hmac.new(secret.encode(), signed, hashlib.sha256).hexdigest()
    assert headers["Content-Type"] == "application/json; charset=utf-8"


TEXT = f"Sluice: Channel moonshot is down\n{HUB}{LINK}"
CARD = {
    "contentType": "application/vnd.microsoft.card.adaptive",
    "content": {
        **{"type": "AdaptiveCard", "version": "1.4"},
        "body": [{"type": "TextBlock", "text": TEXT, "wrap": True}],
    },
}


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("slack", {"text": TEXT}),
        ("feishu", {"msg_type": "text", "content": {"text": TEXT}}),
        ("dingtalk", {"msgtype": "text", "text": {"content": TEXT}}),
        ("wecom", {"msgtype": "text", "text": {"content": TEXT}}),
        ("telegram", {"chat_id": "-100", "text": TEXT}),
        ("teams", {"type": "message", "attachments": [CARD]}),
    ],
)
def test_each_chat_gets_its_form(db, webhook, kind, body):
    place, _ = destination(db, webhook.url, kind, chat="-100" if kind == "telegram" else "")
    webhook.answer = (200, b'{"code":0,"errcode":0,"ok":true}')
    assert make_sender().send(db, message(place)).ok
    assert webhook.documents() == [body] and "Sluice-Signature" not in webhook.received[0][0]


@pytest.mark.parametrize("kind", messages.CHATS)
def test_names_mention_nobody_in_a_chat_and_are_no_links(kind):
    text = 'Key <!channel> <at user_id="all">x</at> [free](https://evil.example) is used up'
    body = messages.body_for(replace(message(), text=text), HUB, Address(kind)).decode()
    shown = body[body.index("Key") : body.index("used up")]
    assert "!channel" in shown and not {"<", "["} & {*shown}


@pytest.mark.parametrize(
    ("kind", "answer", "problem"),
    [
        (
            "dingtalk",
            (200, b'{"errcode":310000,"errmsg":"keywords"}'),
            "200 errcode 310000: keywords",
        ),
        ("wecom", (200, b'{"errcode":93000,"errmsg":"bad url"}'), "200 errcode 93000: bad url"),
        ("feishu", (200, b'{"code":19024,"msg":"Key Words"}'), "200 code 19024: Key Words"),
        ("feishu", (200, b"<html>"), "200 the answer is no JSON"),
        ("slack", (403, b"invalid_token"), "403 invalid_token"),
        ("webhook", (503, b"\xff busy\n\n" + b"x" * 10**6), "503 "),
        ("webhook", (302, b""), "302 redirects are not followed"),
    ],
)
def test_what_was_not_taken_is_tried_again(db, webhook, kind, answer, problem):
    webhook.answer, webhook.headers = answer, {"Location": webhook.url}
    place, _ = destination(db, webhook.url, kind)
    result = make_sender().send(db, message(place))
    assert (result.ok, result.again) == (False, True) and result.text.startswith(problem)
    assert len(webhook.received) == 1 and len(result.text) < 120


def set_role(db, user_id, role):
    update = 'UPDATE "users" SET "role" = ? WHERE "id" = ?'
    transaction(db, lambda: execute(db, update, (role, user_id)))


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::ffff:127.0.0.1]"])
def test_a_members_webhook_reaches_no_private_address(db, webhook, host):
    owner_id = add_user(db, "bob")
    url = webhook.url.replace("127.0.0.1", host)
    with pytest.raises(Refused, match="is not a public address"):
        destination(db, url, owner_id=owner_id)
    set_role(db, owner_id, "admin")
    place, _ = destination(db, url, owner_id=owner_id)
    assert make_sender().send(db, message(place, owner_id)).ok
    set_role(db, owner_id, "member")
    result = make_sender().send(db, message(place, owner_id))
    assert "is not a public address" in result.text and len(webhook.received) == 1


def test_an_address_is_judged_at_each_try_after_resolution(db, webhook, monkeypatch):
    """A name that resolves to another address the second time is then refused."""
    owner_id = add_user(db, "bob")
    place, _ = destination(db, webhook.url.replace("127.0.0.1", "127.1"), owner_id=owner_id)
    judged = []

    def is_public(address):
        judged.append(address)
        return len(judged) == 1

    monkeypatch.setattr("handlers.relay.upstream.handle.is_public", is_public)
    sent = [make_sender().send(db, message(place, owner_id)).ok for _ in range(2)]
    assert sent == [True, False] and judged == ["127.0.0.1"] * 2


def test_a_webhook_that_does_not_answer_holds_up_for_a_bounded_time(db, webhook, monkeypatch):
    monkeypatch.setattr("handlers.relay.upstream.webhook.TOTAL_S", 1)
    webhook.wait_s = 3
    place, _ = destination(db, webhook.url)
    result = make_sender().send(db, message(place))
    assert not result.ok and "timed out" in result.text.lower()


def test_mail_to_the_owner_and_to_addresses(db, mail_server):
    owner_id = add_user(db, "bob")
    set_mail = 'UPDATE "users" SET "mail" = ? WHERE "id" = ?'
    transaction(db, lambda: execute(db, set_mail, ("bob@example.com", owner_id)))
    place, _ = destination(db, "noc@example.com, a@example.com", "mail")
    sends = make_sender(mail_server.url)
    for one in (message(user_id=owner_id), message(place), message(place)):
        assert sends.send(db, one).ok
    to = [("bob@example.com",), *[("noc@example.com",), ("a@example.com",)] * 2]
    assert mail_server.recipients == to
    mail = mail_server.mails[0]
    assert mail["Subject"] == "Sluice: Channel moonshot is down"
    assert mail["Message-ID"] == "<01kb2q7m3v0000000000000000@example.com>"
    assert HUB + LINK in mail.get_content()
    assert len({one["Message-ID"] for one in mail_server.mails}) == 1, "another id at a second try"


@pytest.mark.parametrize(
    ("break_it", "problem", "again"),
    [
        (lambda server: setattr(server, "refusal", "550 no such user"), "no such user", True),
        (lambda server: setattr(server, "url", server.url.replace("pass", "fail")), "535", True),
        (lambda server: setattr(server, "url", "smtp://127.0.0.1:1"), "refused", True),
        (lambda server: setattr(server, "url", ""), NO_MAIL, False),
    ],
)
def test_mail_that_is_not_taken_says_why(db, mail_server, break_it, problem, again):
    break_it(mail_server)
    place, _ = destination(db, "noc@example.com", "mail")
    result = make_sender(mail_server.url).send(db, message(place))
    assert problem in result.text and (result.ok, result.again) == (False, again)


def test_a_password_goes_by_tls_alone(db, mail_server, monkeypatch):
    monkeypatch.setattr(smtp, "LOOPBACK", ())
    place, _ = destination(db, "noc@example.com", "mail")
    result = make_sender(mail_server.url).send(db, message(place))
    assert result.text == "the server offers no TLS for the password" and not mail_server.mails


def test_who_has_no_address_and_what_was_removed_is_not_tried_again(db, mail_server):
    owner_id = add_user(db, "bob")
    result = make_sender(mail_server.url).send(db, message(user_id=owner_id))
    assert (result.text, result.again) == (NO_ADDRESS, False)
    gone = make_sender().send(db, message("01GONE"))
    assert (gone.text, gone.again) == ("the destination was removed", False)
    foreign, _ = destination(db, "https://h.example/x")
    other = Sender(MailSettings(), HUB, Cipher(["another key"]))
    assert not other.send(db, message(foreign)).again


def test_a_test_of_a_destination_is_noted(db, webhook):
    place, _ = destination(db, webhook.url)
    assert make_sender().test(db, GATEWAY, place).ok
    assert webhook.documents()[0]["state"] == "test"
    shown = destinations.show(db, GATEWAY, place)
    assert shown.last_ok and re.fullmatch(r"200, \d\.\d\d s", shown.last_result)


def test_a_line_break_in_a_text_makes_no_header():
    made = message()
    broken = Message(
        **{name: getattr(made, name) for name in Message.__slots__} | {"text": "a\r\nB: c"}
    )
    mail = messages.mail_for(broken, HUB, "sluice@example.com", "noc@example.com")
    assert mail["Subject"] == "Sluice: a B: c" and mail["B"] is None
    assert messages.body_for(broken, HUB, Address("webhook")).isascii()
