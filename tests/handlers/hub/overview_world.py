"""A store with groups, models, a channel and calls, for the tests of home, status and wallet."""

import re

from operations.edits import editor
from store.admin.document import parse
from store.admin.objects import Sealing
from store.calls.booking import apply_records
from store.db.database import database_ms, transaction
from store.money import wallet
from store.values.cipher import Cipher
from store.values.ids import ulid
from store.values.usage_record import AttemptRecord, Charge
from tests.support.usage_records import usage_record

DOCUMENT = """
[[group]]
name = "coding"
multiplier = "0.8"
models = ["gpt-5", "gpt-5-mini"]
[[group]]
name = "hidden"
[[user]]
name = "alice"
groups = ["default", "coding"]
[[user]]
name = "carol"
balance = "3"
password = "correct horse"
[[model]]
name = "gpt-5"
price = { input = "1.25", output = "10", cache_read = "0.125" }
[[model]]
name = "gpt-5-mini"
price = { input = "0.25", output = "2" }
[[channel]]
name = "secret-account"
vendor = "openai"
family = "chat_completions"
base_url = "https://upstream.example"
keys = ["sk-upstream"]
groups = ["default", "coding", "hidden"]
models = { "gpt-5" = "up-5", "gpt-5-mini" = "up-5-mini" }
"""
SEALING = Sealing(Cipher(["cipher key of the tests"]), ["pepper of the tests"])
serial = iter(range(10**6))


def edit(db, folder, text=DOCUMENT):
    """Apply a document."""
    editor(db, SEALING, "tester").apply(parse(text, {}, folder))


def text_of(answer):
    """Return the text of a page, without tags."""
    return re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", answer.text))


def user_id(db, name):
    return wallet.find_owner(db, name).id


def book(db, *records):
    transaction(db, lambda: apply_records(db, records, database_ms(db)))


def call(db, user="alice", outcome="ok", ago_ms=0, **fields):
    """Return the record of a user's call of gpt-5 in the group coding; it cost 0.1 of the
    wallet."""
    at_ms = database_ms(db) - ago_ms
    code = None if outcome == "ok" else "upstream_error"
    facts = {"user": user, "user_id": user_id(db, user), "key_id": "k", "key_name": "laptop"}
    facts |= {"group": "coding", "model": "gpt-5", "endpoint": "/v1/chat/completions"}
    facts |= {"family": "chat_completions", "started_ms": at_ms, "duration_ms": 900}
    facts |= {"ttft_ms": 150, "stream": True, "output_tokens": 30, "channel": "secret-account"}
    facts |= {"attempts": (AttemptRecord("secret-account", 200, code, 900),)}
    facts |= {"cost_nanos": 10**8, "charges": (Charge("wallet", 10**8),)}
    facts |= {"id": ulid(at_ms, next(serial).to_bytes(10)), "error_code": code}
    return usage_record(**(facts | {"outcome": outcome} | fields))
