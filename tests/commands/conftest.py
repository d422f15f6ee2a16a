"""An installation with an empty store, and its command line, run inside the test's own process."""

import io
import json
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import app
from commands.nouns.init import prepare
from store.calls.rollups import add_records
from store.db.database import discard, insert_columns, open_database, transaction
from store.values.ids import ulid
from store.values.pricing import cost_nanos
from store.values.usage_record import Charge, UsageRecord, columns_of
from tests.support.prices import rate_of
from tests.support.usage_records import usage_record

UPSTREAM_KEY = "sk-upstream-key-of-the-channel"
PRICES = rate_of(2_000, 8_000, 500, 2_000, 3_200, 8_000, 0)
BEGIN_MS = 1_795_000_000_000  # 2026-11-18


class Ended(NamedTuple):
    """The exit code and the output of a command."""

    code: int
    out: str
    err: str


class Installation:
    """A folder with its configuration; `run` takes what an operator types."""

    def __init__(self, folder: Path, store_url: str, capsys: Any, monkeypatch: Any) -> None:
        self.folder = folder
        self.config = folder / "gateway.toml"
        self.store_url = store_url
        self._capsys = capsys
        self._monkeypatch = monkeypatch
        prepare(folder, (f"store.url={store_url}",))

    def run(self, *args: str, stdin: str = "") -> Ended:
        text = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
        self._monkeypatch.setattr("sys.stdin", text)
        self._capsys.readouterr()
        code = app.main([*args, "--config", str(self.config)])
        return Ended(code, *self._capsys.readouterr())

    def ok(self, *args: str, stdin: str = "") -> str:
        ended = self.run(*args, stdin=stdin)
        assert ended.code == 0, f"{args}: exit {ended.code}: {ended.err}"
        return ended.out

    def json(self, *args: str, stdin: str = "") -> Any:
        return json.loads(self.ok(*args, "--json", stdin=stdin))

    def refused(self, *args: str, stdin: str = "") -> str:
        """Run a command that must fail with exit code 1 and print no data; return its message."""
        ended = self.run(*args, stdin=stdin)
        assert (ended.code, ended.out) == (1, ""), f"{args}: {ended}"
        return ended.err

    def misused(self, *args: str) -> str:
        ended = self.run(*args)
        assert (ended.code, ended.out) == (2, ""), f"{args}: {ended}"
        return ended.err

    def apply(self, document: dict[str, Any]) -> Any:
        return self.json("apply", "-", stdin=json.dumps(document))

    @contextmanager
    def store(self):
        db = open_database(self.store_url)
        try:
            yield db
        finally:
            discard(db)

    def write_records(self, *records: UsageRecord, recorded_ms: int = BEGIN_MS) -> None:
        with self.store() as db:
            columns = columns_of(records, recorded_ms)
            transaction(db, lambda: insert_columns(db, "usage_records", columns))
            transaction(db, lambda: add_records(db, records))


def document(base_url: str = "http://127.0.0.1:1") -> dict[str, Any]:
    """Return a document with an object of every kind."""
    return {
        "model": [{"name": "gpt-4.1", "price": {"input": "2", "output": "8"}}],
        "group": [{"name": "default"}],
        "channel": [
            {
                "name": "main",
                "vendor": "demo",
                "family": "chat_completions",
                "base_url": base_url,
                "keys": [UPSTREAM_KEY],
                "models": {"gpt-4.1": "up-gpt"},
            }
        ],
        "user": [{"name": "alice", "balance": "10"}],
        "key": [{"user": "alice", "name": "laptop"}],
    }


def record(number: int, **changes: Any) -> UsageRecord:
    """Return the record of call `number`: one a second from BEGIN_MS on, with the right cost, not
    in the ledger."""
    started_ms = BEGIN_MS + number * 1000
    fields: dict[str, Any] = {
        "id": ulid(started_ms, number.to_bytes(10)),
        "started_ms": started_ms,
        "user_id": "user-1",
        "user": "alice",
        "key_id": "key-1",
        "key_name": "laptop",
        "group": "default",
        "endpoint": "/v1/chat/completions",
        "family": "chat_completions",
        "model": "gpt-4.1",
        "channel": "main",
        "stream": False,
        "status": 200,
        "input_tokens": 1000,
        "output_tokens": 500,
        "usage_source": "reported",
        "prices": PRICES.text,
        "multiplier_ppm": 1_000_000,
        "node": "node-1",
        **changes,
    }
    made = usage_record(**fields)
    made.cost_nanos = cost_nanos(made.usage, PRICES, 1_000_000)
    made.charges = (Charge("wallet", made.cost_nanos),)
    return made


@pytest.fixture
def installation(tmp_path, capsys, monkeypatch):
    """Yield an installation on SQLite without objects."""
    return Installation(tmp_path, f"sqlite:///{tmp_path}/sluice.db", capsys, monkeypatch)


@pytest.fixture
def filled(installation):
    """Return an installation with the objects of `document`."""
    installation.apply(document())
    return installation


@pytest.fixture
def restore(capsys):
    """Return restore(args), which returns exit code, output, errors."""

    def run(*args):
        capsys.readouterr()
        return app.main(["restore", *map(str, args)]), *capsys.readouterr()

    return run
