"""Messages in the format of each kind of destination: the JSON of webhooks and chats, and mails.
Pure.

Sources: docs of Slack (incoming webhooks), Feishu and DingTalk (custom robots), WeCom (group
robots), Telegram (Bot API, sendMessage), Microsoft Teams (workflows' webhooks with adaptive cards).
"""

import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any

from store.alerts.destinations import Address
from store.alerts.outbox import Message
from store.values.usage_record import rfc3339

SIGNATURE = "Sluice-Signature"
MARK = "Sluice: "
"""The beginning of texts in chats. Robots may be set to accept only texts with a given word."""
_NO_MARKUP = str.maketrans("<[", "\uff1c\uff3b")
"""Texts contain names that users choose. In a chat these must not mention anyone or be links."""


def document(message: Message, link: str) -> dict[str, Any]:
    """Return a message in the format of webhooks. `id` is the same at each try."""
    return {
        "id": message.id,
        "rule": message.kind,
        "state": message.state,
        "since": rfc3339(message.since_ms),
        "object": dict(message.object),
        "text": message.text,
        "link": link,
    }


def signature(secret: str, at_s: int, body: bytes) -> str:
    """Return the value of SIGNATURE: the time, and HMAC-SHA256 of "t.body" with the secret."""
    signed = hmac.new(secret.encode(), f"{at_s}.".encode() + body, hashlib.sha256).hexdigest()
    return f"t={at_s},v1={signed}"


@dataclass(frozen=True, slots=True)
class Chat:
    """A kind of chat: the body for a text, and the field of the answer that is 0 if the chat
    accepted the message. None: the HTTP status tells."""

    body: Callable[[str, Address], dict[str, Any]]
    code: str | None = None


def _card(text: str, address: Address) -> dict[str, Any]:
    block = {"type": "TextBlock", "text": text, "wrap": True}
    card = {"type": "AdaptiveCard", "version": "1.4", "body": [block]}
    attached = {"contentType": "application/vnd.microsoft.card.adaptive", "content": card}
    return {"type": "message", "attachments": [attached]}


CHATS: Mapping[str, Chat] = {
    "slack": Chat(lambda text, _: {"text": text}),
    "feishu": Chat(lambda text, _: {"msg_type": "text", "content": {"text": text}}, "code"),
    "dingtalk": Chat(lambda text, _: {"msgtype": "text", "text": {"content": text}}, "errcode"),
    "wecom": Chat(lambda text, _: {"msgtype": "text", "text": {"content": text}}, "errcode"),
    "telegram": Chat(lambda text, address: {"chat_id": address.chat, "text": text}),
    "teams": Chat(_card),
}


def body_for(message: Message, link: str, address: Address) -> bytes:
    """Return the body of the POST to an address."""
    chat = CHATS.get(address.kind)
    value = (
        document(message, link)
        if chat is None
        else chat.body(f"{MARK}{message.text.translate(_NO_MARKUP)}\n{link}", address)
    )
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def refusal(kind: str, answer: bytes) -> str:
    """Return why a chat refused a message that it answered with 200; empty if it accepted it."""
    chat = CHATS.get(kind)
    if chat is None or chat.code is None:
        return ""
    try:
        value = json.loads(answer)
        code = value.get(chat.code, 0)
    except (ValueError, AttributeError, RecursionError):
        return "the answer is no JSON"
    if code in (0, "0"):
        return ""
    return f"{chat.code} {code}: {value.get('msg') or value.get('errmsg') or ''}".rstrip(": ")


def mail_for(message: Message, link: str, sender: str, to: str) -> EmailMessage:
    """Return the mail to one address. Its Message-ID is the same at each try."""
    mail = EmailMessage()
    mail["From"], mail["To"] = sender, to
    mail["Subject"] = (MARK + " ".join(message.text.split()))[:200]
    mail["Message-ID"] = f"<{message.id.lower()}@{sender.partition('@')[2]}>"
    mail["Auto-Submitted"] = "auto-generated"
    since = rfc3339(message.since_ms)
    mail.set_content(f"{message.text}\n\nSince {since}\n{link}\n\nMessage {message.id}\n")
    return mail
