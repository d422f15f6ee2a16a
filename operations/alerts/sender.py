"""The sender of alerts: mail by SMTP, webhooks and chats by HTTP.

For the upkeep's thread, and for tests of destinations in the Hub. Blocks for some seconds. Raises
only StoreError. The clients of webhooks and mail are loaded when they are first used: they take 6
and 1 MB, in the Hub as well.
"""

import importlib
import time
from collections.abc import Sequence
from dataclasses import dataclass

import peewee

from conf.settings import HubSettings, MailSettings
from operations.alerts.messages import SIGNATURE, body_for, mail_for, refusal, signature
from store.alerts import destinations, outbox
from store.alerts.destinations import MAIL, Address
from store.alerts.outbox import Message, Result
from store.db.database import database_ms
from store.values.cipher import Cipher, Unreadable
from store.values.ids import new_ulid

SMTP = "operations.alerts.smtp"
WEBHOOK = "handlers.relay.upstream.webhook"
NO_MAIL = "mail is not set up"
NO_ADDRESS = "no mail address"


def hub_url(hub: HubSettings) -> str:
    """Return the address of the Hub for links in messages."""
    return hub.public_url.rstrip("/") or f"http://{hub.host}:{hub.port}"


@dataclass(frozen=True, slots=True)
class Sender:
    """The sender, with its settings and keys."""

    mail: MailSettings
    hub_url: str
    cipher: Cipher

    def send(self, db: peewee.Database, message: Message) -> Result:
        """Send a message once."""
        link = self.hub_url + message.link
        if not message.destination_id:
            address = outbox.mail_of(db, message.user_id)
            return self.send_mail(message, link, [address] if address else [])
        try:
            target = destinations.address_of(db, message.destination_id, self.cipher)
        except Unreadable as error:
            return Result(ok=False, text=str(error), again=False)
        if target is None:
            return Result(ok=False, text="the destination was removed", again=False)
        if target.kind == MAIL:
            return self.send_mail(message, link, target.mail)
        allow_private = destinations.may_be_private(db, message.owner_id)
        return _post(message, link, target, allow_private=allow_private)

    def test(self, db: peewee.Database, owner_id: str, destination_id: str) -> Result:
        """Send a sample to a destination and record the result. Raises NotFound."""
        target = destinations.show(db, owner_id, destination_id)
        result = self.send(db, _sample(owner_id, destination_id, target.name, database_ms(db)))
        destinations.note_result(db, destination_id, result.text, result.took_ms, ok=result.ok)
        return result

    def test_mail(self, db: peewee.Database, to: str) -> Result:
        """Send a sample by mail to one address."""
        message = _sample("", "", to, database_ms(db))
        return self.send_mail(message, f"{self.hub_url}/alerts", [to])

    def send_mail(self, message: Message, link: str, to: Sequence[str]) -> Result:
        """Send a mail to each of these addresses in one session with the server."""
        if not self.mail.url:
            return Result(ok=False, text=NO_MAIL, again=False)
        if not to:
            return Result(ok=False, text=NO_ADDRESS, again=False)
        mails = [mail_for(message, link, self.mail.sender, address) for address in to]
        began = time.monotonic()
        if problem := importlib.import_module(SMTP).problem_of(self.mail.url, mails):
            return Result(ok=False, text=problem)
        return Result(ok=True, took_ms=round(1000 * (time.monotonic() - began)))


def _post(message: Message, link: str, address: Address, *, allow_private: bool) -> Result:
    body = body_for(message, link, address)
    headers = ["Content-Type: application/json; charset=utf-8"]
    if address.secret:
        headers.append(f"{SIGNATURE}: {signature(address.secret, int(time.time()), body)}")
    posted = importlib.import_module(WEBHOOK).post(
        address.url, body, headers, allow_private=allow_private
    )
    if not posted.status:
        return Result(ok=False, text=posted.problem)
    problem = _first_words(posted.body)
    if 200 <= posted.status < 300:
        problem = refusal(address.kind, posted.body)
        if not problem:
            return Result(ok=True, text=str(posted.status), took_ms=posted.took_ms)
    elif 300 <= posted.status < 400:
        problem = "redirects are not followed"
    return Result(ok=False, text=f"{posted.status} {problem}".strip())


def _first_words(body: bytes) -> str:
    return " ".join(body[:200].decode("utf-8", "replace").split())[:80]


def _sample(owner_id: str, destination_id: str, receiver: str, at_ms: int) -> Message:
    return Message(
        id=new_ulid(),
        owner_id=owner_id,
        rule_id="",
        kind=outbox.TEST,
        state=outbox.TEST,
        since_ms=at_ms,
        made_ms=at_ms,
        object={},
        text="This is a test. Alerts of Sluice arrive here.",
        link="/alerts",
        destination_id=destination_id,
        user_id="",
        receiver=receiver,
        status=outbox.WAITING,
        tries=0,
        result="",
        took_ms=None,
    )
