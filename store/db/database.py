"""Connections, transactions and the meaning of driver errors, for SQLite and MySQL alike.

Differences between the two dialects are handled here and in schema.py, nowhere else. SQL text
elsewhere in store/ is written once: `?` for a parameter, "name" for a quoted identifier. Each
thread has a connection of its own, opened at first use. Only store/ and composition roots import
this module.
"""

import functools
import os
import random
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any, ParamSpec, TypeVar, cast

import peewee
import pymysql.err

from store.db.mysql import (
    CONNECT_TIMEOUT_S,
    LOCK_WAIT_S,
    READ_TIMEOUT_S,
    MySql,
    TakesNoWrites,
    open_mysql,
)
from store.values.errors import Conflict, OutcomeUnknown, ReadOnly, StoreError, StoreUnavailable
from store.values.ids import new_ulid, now_ms

Result = TypeVar("Result")
Value = TypeVar("Value")
_OfDatabase = ParamSpec("_OfDatabase")

TRANSACTION_ATTEMPTS = 8
TRANSACTION_RETRY_S = 15.0
RETRY_BASE_S = 0.005
RETRY_CAP_S = 0.25
OUTCOME_WAIT_S = 15.0
OUTCOME_PAUSE_S = 0.5
CLOCKS_AGREE_MS = 200  # the difference that network latency and load can cause between equal clocks
SQLITE_VARIABLES = 999  # in one statement: every SQLite accepts this many
PORTION = 500  # values of one `IN (…)`

DRIVER_ERRORS = (peewee.PeeweeException, sqlite3.Error, pymysql.err.MySQLError)

MYSQL_DUPLICATE = 1062
# 1020: a row changed under a snapshot (MariaDB); retried like a deadlock.
MYSQL_RETRY = frozenset({1020, 1205, 1213})
# The server takes no writes: read_only, innodb_read_only, transaction_read_only.
MYSQL_READ_ONLY = frozenset({1290, 1836, 1792})
# 0 is PyMySQL's "connection already closed"; 1927 and 4031: killed by the server.
MYSQL_LOST = frozenset({0, 1047, 1053, 1180, 1927, 2006, 2013, 2014, 2055, 4031})
MYSQL_AWAY = frozenset(
    {1020, 1021, 1040, 1041, 1042, 1043, 1044, 1045, 1049, 1129, 1130, 1146, 1203, 1205, 1213}
    | {1054, 1114, 1226, 1317, 2002, 2003, 2005, 2026, 3024, 1969, 3100, 3101}
    | MYSQL_READ_ONLY
)
SQLITE_RETRY = frozenset({sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED})
SQLITE_AWAY = SQLITE_RETRY | {
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_NOTADB,
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_NOLFS,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_SCHEMA,
    sqlite3.SQLITE_INTERRUPT,
}
_SQLITE_NO_SCHEMA = ("no such table", "no such column", "has no column named")
_SQLITE_NO_TRANSACTION = "no transaction is active"

# If sqlite3 finds no adapter for a type, it raises and drops an AttributeError before it takes the
# value as it is. With all its Nones, that is a good part of the time to insert a usage record.
_as_it_is: Callable[[None], None] = {None: None}.__getitem__
sqlite3.register_adapter(type(None), _as_it_is)
sqlite3.register_adapter(bool, int)

_MARK = 'INSERT INTO "marks" ("id", "at_ms") VALUES (?, ?)'
# Not NOW, which is in the session's time zone, where one hour a year occurs twice.
_MYSQL_CLOCK = "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(3)) DIV 1000"


class _Sqlite(peewee.SqliteDatabase):
    retries: Counter[str]

    def _connect(self) -> Any:
        # The file holds digests and sealed keys, so only its owner may read it. SQLite gives the
        # WAL files the mode of the main file. An existing file is not opened here: closing any
        # descriptor of it would release all locks that this process has on it (POSIX), and another
        # process could then delete the WAL under our connections.
        try:
            os.close(os.open(self.database, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
        except FileExistsError:
            pass
        except OSError as error:
            failure = sqlite3.OperationalError(error.strerror)
            failure.sqlite_errorcode = sqlite3.SQLITE_CANTOPEN
            raise failure from error
        return super()._connect()  # type: ignore[misc]


def open_database(
    url: str,
    *,
    connect_timeout_s: float = CONNECT_TIMEOUT_S,
    read_timeout_s: float = READ_TIMEOUT_S,
) -> peewee.Database:
    """Return the database of `store.url`. Nothing is connected yet; threads connect at first use.

    `url` is `sqlite:///PATH` or what `open_mysql` accepts; anything else raises ValueError.
    `read_timeout_s` bounds the wait for one answer of a MySQL server. Commands that alter large
    tables set a longer one.
    """
    if url.startswith("sqlite:///"):
        db: _Sqlite | MySql = _open_sqlite(url.removeprefix("sqlite:///"))
    elif url.startswith("mysql://"):
        db = open_mysql(url, connect_timeout_s, read_timeout_s)
    else:
        raise ValueError("store.url must begin with sqlite:/// or mysql://")
    db.retries = Counter()
    return db


def open_watched(url: str, connect_timeout_s: float, read_timeout_s: float) -> peewee.Database:
    """Return the database of `store.url` for a long-running process: as `open_database`, with a
    thread that watches the writing host if there are several hosts."""
    db = open_database(url, connect_timeout_s=connect_timeout_s, read_timeout_s=read_timeout_s)
    if isinstance(db, MySql):
        db.watch_hosts()
    return db


def _open_sqlite(path: str) -> _Sqlite:
    if not path or path == ":memory:":
        raise ValueError("store.url names no SQLite file")
    pragmas = {"journal_mode": "wal", "synchronous": "full", "foreign_keys": 0}
    types = {"LONGTEXT": "TEXT", "DIGEST": "BLOB"}
    return _Sqlite(path, pragmas=pragmas, timeout=LOCK_WAIT_S, field_types=types)


def is_mysql(db: peewee.Database) -> bool:
    """Return True for the MySQL dialect (including MariaDB), False for SQLite."""
    return isinstance(db, peewee.MySQLDatabase)


@functools.lru_cache(maxsize=1024)
def _mysql_text(text: str) -> str:
    return text.replace("%", "%%").replace("?", "%s")


def database_ms(db: peewee.Database) -> int:
    """Return the database's clock in milliseconds since 1970, UTC, by which machines compare times
    with each other (ADR 0016).

    SQLite serves one machine and uses that machine's clock. In a transaction it is the time of this
    call, not of the transaction's start. Raises StoreUnavailable.
    """
    if not is_mysql(db):
        return now_ms()
    return int(snapshot_read(db, lambda: execute(db, _MYSQL_CLOCK).fetchone())[0])


def lead_ms(db: peewee.Database) -> int:
    """Return how far the database's clock is ahead of this process's, in ms, as `lead_of` does.
    Raises as `database_ms` does."""
    return lead_of(database_ms(db))


def lead_of(at_ms: int) -> int:
    """Return how far the database's clock, which was just read, is ahead of this process's, in ms.
    0 if it is less than CLOCKS_AGREE_MS, so that equal clocks count as equal."""
    lead = at_ms - now_ms()
    return lead if abs(lead) >= CLOCKS_AGREE_MS else 0


def dialect_text(db: peewee.Database, text: str) -> str:
    """Return SQL (`?` for parameters, "name" quoted) in the form that this database's driver
    takes."""
    return _mysql_text(text) if is_mysql(db) else text


def execute(db: peewee.Database, text: str, parameters: Sequence[Any] = ()) -> Any:
    """Run one statement (`?` parameters) on this thread's connection. Return a DB-API cursor.
    Raises the driver's errors; call it inside `transaction` or `snapshot_read`, which translate
    them."""
    driver: Any = db
    return driver.execute_sql(dialect_text(db, text), tuple(parameters))


def executemany(db: peewee.Database, text: str, rows: Iterable[Sequence[Any]]) -> int:
    """Run one statement for many rows on the raw connection. Return the number of affected rows.
    Raises as `execute` does."""
    driver: Any = db
    cursor = driver.connection().cursor()
    try:
        cursor.executemany(dialect_text(db, text), list(rows))
        return int(cursor.rowcount)
    finally:
        cursor.close()


def insert_rows(
    db: peewee.Database, table: Any, rows: Sequence[Mapping[str, Any]], replace: Sequence[str] = ()
) -> None:
    """Insert rows of a model that all have the same columns. Where the primary key exists already,
    set the columns of `replace` to the new values. Raises as `execute` does."""
    for portion in peewee.chunked(rows, SQLITE_VARIABLES // len(rows[0])) if rows else ():
        insert = table.insert_many(portion)
        if replace:
            # MySQL uses any unique key and does not accept a conflict target.
            key = None if is_mysql(db) else table._meta.get_primary_keys()
            insert = insert.on_conflict(conflict_target=key, preserve=replace)
        insert.execute(db)


def insert_columns(db: peewee.Database, table: str, columns: Mapping[str, Sequence[Any]]) -> None:
    """Insert rows given as columns of the same length. A column that is left out has its default.
    Raises as `execute` does.

    On SQLite, each statement takes as many rows as it may: starting and ending one costs as much as
    about ten values, and passes the interpreter to another thread. PyMySQL does the same by itself.
    """
    names = tuple(columns)
    rows = zip(*columns.values(), strict=True)
    at_once = SQLITE_VARIABLES // len(names)
    if not is_mysql(db):
        for _ in range(len(columns[names[0]]) // at_once):
            values = tuple(chain.from_iterable(islice(rows, at_once)))
            execute(db, _insert_text(table, names, at_once), values)
    executemany(db, _insert_text(table, names, 1), rows)


@functools.lru_cache(maxsize=128)
def _insert_text(table: str, names: tuple[str, ...], rows: int) -> str:
    places = f"({', '.join('?' * len(names))})"
    return f'INSERT INTO "{table}" ({quoted(names)}) VALUES {", ".join([places] * rows)}'


def quoted(names: Iterable[str]) -> str:
    """Return the columns as a list, quoted."""
    return ", ".join(f'"{name}"' for name in names)


def upsert_texts(
    table: str, names: Sequence[str], key: Sequence[str], changes: Mapping[str, str]
) -> dict[bool, str]:
    """Return an INSERT of one row that, if a row with that key exists, updates it instead; by
    `is_mysql`. `changes` maps columns to their new values, with `{column}` for the inserted
    value."""
    insert = _insert_text(table, tuple(names), 1)
    texts = {True: f"{insert} ON DUPLICATE KEY UPDATE "}
    texts[False] = f"{insert} ON CONFLICT ({quoted(key)}) DO UPDATE SET "
    for mysql, new in ((True, 'VALUES("{}")'), (False, 'excluded."{}"')):
        values = {name: new.format(name) for name in names}
        texts[mysql] += ", ".join(
            f'"{name}" = {text.format_map(values)}' for name, text in changes.items()
        )
    return texts


def insert_sums(
    db: peewee.Database, text: str, rows: Sequence[tuple[Sequence[Any], Sequence[int]]]
) -> None:
    """Run an INSERT of one row, as made by `upsert_texts`, for many rows. Each has some values,
    then integers. PyMySQL takes 0.6 us to write a value, so the integers are part of the
    statement."""
    if not rows or not is_mysql(db):
        executemany(db, text, [(*values, *numbers) for values, numbers in rows])
        return
    values, numbers = rows[0]
    places = f"({', '.join(['%s'] * (len(values) + len(numbers)))})"
    before, after = _mysql_text(text).split(places)
    own, driver = "%s, " * len(values), cast("Any", db)
    for portion in portions(rows):
        texts = (f"({own}{', '.join(map(str, numbers))})" for _, numbers in portion)
        parameters = tuple(chain.from_iterable(values for values, _ in portion))
        driver.execute_sql(f"{before}{', '.join(texts)}{after}", parameters)


def portions(values: Sequence[Value]) -> Iterator[Sequence[Value]]:
    """Return an iterator over the values in order, at most PORTION at a time: as many as one
    statement takes."""
    return (values[start : start + PORTION] for start in range(0, len(values), PORTION))


def transaction(db: peewee.Database, work: Callable[[], Result], *, marked: bool = False) -> Result:
    """Run `work()` in one write transaction and commit it. Return what `work` returns.

    All of `work` is repeated after a deadlock, a lock time-out or a busy SQLite file, so it must
    have no effect outside the database. Inside a running transaction it joins that one. Raises
    StoreUnavailable if nothing was committed (ReadOnly: the server takes no writes), and
    OutcomeUnknown if the connection was lost in COMMIT. With `marked`, a row of `marks` then shows
    whether the transaction was committed; this is tried for up to OUTCOME_WAIT_S, and the
    transaction is repeated if it was not. This needs the schema. Errors of `work` itself roll back
    and propagate.
    """
    # SQLite: IMMEDIATE takes the write lock at once. A read lock that is upgraded later fails with
    # SQLITE_BUSY without any waiting.
    return _run(db, work, None if is_mysql(db) else "IMMEDIATE", marked=marked)


def snapshot_read(db: peewee.Database, work: Callable[[], Result]) -> Result:
    """Run the reads of `work()` in one transaction that sees one snapshot. Raises the store's
    errors."""
    return _run(db, work, "REPEATABLE READ" if is_mysql(db) else "DEFERRED")


def in_transaction(function: Callable[_OfDatabase, Result]) -> Callable[_OfDatabase, Result]:
    """Decorate a function whose first argument is the database: all of it is one marked
    `transaction`."""
    return _within(functools.partial(transaction, marked=True), function)


def in_snapshot(function: Callable[_OfDatabase, Result]) -> Callable[_OfDatabase, Result]:
    """Decorate a function whose first argument is the database: all of it is one
    `snapshot_read`."""
    return _within(snapshot_read, function)


def _within(run: Any, function: Callable[_OfDatabase, Result]) -> Callable[_OfDatabase, Result]:
    @functools.wraps(function)
    def within(*arguments: _OfDatabase.args, **named: _OfDatabase.kwargs) -> Result:
        return cast("Result", run(arguments[0], lambda: function(*arguments, **named)))

    return within


def select_rows(db: peewee.Database, query: Any) -> list[tuple[Any, ...]]:
    """Return all rows of a query of the builder as tuples, by `snapshot_read`."""
    return snapshot_read(db, lambda: list(query.tuples().bind(db)))


def raw_rows(db: peewee.Database, query: Any) -> list[tuple[Any, ...]]:
    """Return rows as `select_rows`, with the driver's values. For long tables, since converting a
    usage record takes the builder as long as reading it takes the driver (5 us each)."""
    driver: Any = db
    return snapshot_read(db, lambda: driver.execute(query).fetchall())


def has_words(column: Any, search: str) -> Any:
    """Return the condition that a column contains a text, ignoring case."""
    # Not coerced: on a JSON column the text would be encoded.
    return peewee.fn.LOWER(column).coerce(False).contains(search.lower())


def first_row(db: peewee.Database, query: Any) -> tuple[Any, ...] | None:
    """Return the first row of a query of the builder, or None, by `snapshot_read`."""
    return next(iter(select_rows(db, query.limit(1))), None)


def require_writable(db: peewee.Database) -> None:
    """Raise ReadOnly if the server is known to take no writes, which is checked every
    READ_ONLY_CHECK_S. Raises StoreUnavailable if it cannot be reached. Not in a transaction."""
    if isinstance(db, MySql):
        try:
            db.renew()
            db.require_writable()
        except DRIVER_ERRORS as error:
            raise classify(error, where=place(db)) from error


def _run(
    db: peewee.Database, work: Callable[[], Result], mode: str | None, *, marked: bool = False
) -> Result:
    if db.in_transaction():
        return work()
    give_up_at = time.monotonic() + TRANSACTION_RETRY_S
    for attempt in range(TRANSACTION_ATTEMPTS):
        attempted = _Attempt(db, mode, marked=marked and is_mysql(db))
        try:
            return attempted.run(work)
        except DRIVER_ERRORS as error:
            is_unknown = attempted.committing and _is_lost(error)
            if is_unknown and attempted.mark:
                if _has_happened(db, attempted.mark, error):
                    return cast("Result", attempted.result)
                is_unknown, give_up_at = False, time.monotonic() + TRANSACTION_RETRY_S
                again = True
            else:
                again = attempted.may_repeat(error) and time.monotonic() < give_up_at
            if not again or attempt == TRANSACTION_ATTEMPTS - 1:
                raise classify(error, committing=is_unknown, where=place(db)) from error
            if isinstance(db, (_Sqlite, MySql)):
                db.retries[code_text(error)] += 1
        time.sleep(random.uniform(0, min(RETRY_CAP_S, RETRY_BASE_S * 2**attempt)))
    raise AssertionError("the last attempt returns or raises")


def outcome(db: peewee.Database, mark: str) -> int | None:
    """Return when a transaction with this mark was committed, in ms. None: it was not, and never
    will be, since the mark is now used. Raises StoreUnavailable."""
    # If the transaction is still in progress, one of the two has to yield to the other.
    voided: dict[str, list[Any]] = {"id": [mark], "at_ms": [-now_ms()]}
    try:
        transaction(db, lambda: insert_columns(db, "marks", voided))
    except Conflict:
        text = 'SELECT "at_ms" FROM "marks" WHERE "id" = ?'
        at_ms = int(snapshot_read(db, lambda: execute(db, text, (mark,)).fetchone())[0])
        return at_ms if at_ms > 0 else None
    return None


def _has_happened(db: peewee.Database, mark: str, error: BaseException) -> bool:
    """Return whether a transaction that this error interrupted in COMMIT was committed. Raises
    OutcomeUnknown if no host answers for OUTCOME_WAIT_S."""
    give_up_at = time.monotonic() + OUTCOME_WAIT_S
    while True:
        try:
            return outcome(db, mark) is not None
        except StoreUnavailable:
            if time.monotonic() >= give_up_at:
                unknown = classify(error, committing=True, where=place(db))
                unknown.args = (f"{unknown}; it may have been done: ./sluice store mark {mark}",)
                raise unknown from error
        time.sleep(OUTCOME_PAUSE_S)


class _Attempt:
    """One attempt of a transaction, and how far it got. `mark` is the id of the mark that it
    leaves, `result` the result of the work."""

    result: Any = None

    def __init__(self, db: peewee.Database, mode: str | None, *, marked: bool) -> None:
        self.db = db
        self.mode = mode
        self.mark = new_ulid() if marked else ""
        if isinstance(db, MySql):
            db.renew()
        self.reused = not db.is_closed()
        self.begun = False
        self.committing = False

    def run(self, work: Callable[[], Result]) -> Result:
        try:
            if self.mode is None and isinstance(self.db, MySql):
                self.db.require_writable()
            with self.db.atomic(*([self.mode] if self.mode else [])):
                self.begun = True
                result = self.result = work()
                if self.mark:
                    execute(self.db, _MARK, (self.mark, now_ms()))
                self.committing = True
        except DRIVER_ERRORS as error:
            first = _before_rollback(error)
            if first is not error or _is_lost(error):
                discard(self.db)
            elif isinstance(self.db, MySql) and _code(error) in MYSQL_READ_ONLY:
                self.db.give_up_sessions()
            raise first from None
        return result

    def may_repeat(self, error: BaseException) -> bool:
        # A refused write: the name may now resolve to the server that takes writes.
        if _code(error) in (MYSQL_RETRY | MYSQL_READ_ONLY if is_mysql(self.db) else SQLITE_RETRY):
            return True
        # The server closed a kept connection while it was idle, before anything was started on it.
        return self.reused and not self.begun and _is_lost(error)


def _before_rollback(error: BaseException) -> BaseException:
    """Return the first error. SQLite ends a transaction itself when the disk is full; then peewee's
    rollback fails, too, and hides the reason."""
    while _SQLITE_NO_TRANSACTION in str(error) and error.__context__ is not None:
        error = error.__context__
    return error


def discard(db: peewee.Database) -> None:
    """Close this thread's connection, whatever its state. The next use opens a new one."""
    try:
        db.close()
    except DRIVER_ERRORS:
        pass


def place(db: peewee.Database) -> str:
    """Return the name of a database for messages: its file, or host, port and name, without the
    login."""
    return f"{db.hosts.current.name}/{db.database}" if isinstance(db, MySql) else str(db.database)


def classify(error: BaseException, *, committing: bool = False, where: str = "") -> StoreError:
    """Return the store's error for an error of peewee, PyMySQL or sqlite3.

    `committing`: it was raised by COMMIT, so a lost connection leaves the outcome unknown. `where`:
    the `place` of the database, for messages about the database rather than about the data.
    """
    if isinstance(error, StoreError):
        return error
    origin = _origin(error)
    if isinstance(origin, TakesNoWrites):
        return ReadOnly(f"{where}: {_text(origin)}")
    code = _code(error)
    text = _text(origin)
    where = f"{where}: " if where else ""
    if _is_lost(error):
        if committing:
            return OutcomeUnknown(f"{where}the connection was lost during commit: {text}")
        return StoreUnavailable(f"{where}the database does not answer: {text}")
    if isinstance(origin, sqlite3.IntegrityError) or code == MYSQL_DUPLICATE:
        return Conflict(text)
    if isinstance(origin, sqlite3.Error):
        missing = any(phrase in text for phrase in _SQLITE_NO_SCHEMA)
        away = missing or code in SQLITE_AWAY
    else:
        away = code in MYSQL_AWAY
    return (StoreUnavailable if away else StoreError)(where + text)


def _origin(error: BaseException) -> BaseException:
    """Return the driver's own error inside peewee's wrapper."""
    while isinstance(error, peewee.PeeweeException):
        inner = getattr(error, "orig", None)
        if not isinstance(inner, BaseException):
            break
        error = inner
    return error


def _code(error: BaseException) -> int | None:
    origin = _origin(error)
    if isinstance(origin, sqlite3.Error):
        code = getattr(origin, "sqlite_errorcode", None)
        # Extended codes have the primary one in their low byte.
        return code & 0xFF if isinstance(code, int) else None
    if origin.args and isinstance(origin.args[0], int):
        return origin.args[0]
    return None


def code_text(error: BaseException) -> str:
    """Return the driver's code of an error, or of its cause: a number of MySQL, a name of SQLite,
    or else the name of the error's class."""
    for cause in (error, error.__cause__):
        if cause is not None and (code := _code(cause)) is not None:
            return getattr(_origin(cause), "sqlite_errorname", str(code))
    return type(_origin(error)).__name__


def repeated(db: peewee.Database) -> Mapping[str, int]:
    """Return the number of repeated transactions of this process, by `code_text`."""
    return dict(db.retries) if isinstance(db, (_Sqlite, MySql)) else {}


def _is_lost(error: BaseException) -> bool:
    return not isinstance(_origin(error), sqlite3.Error) and _code(error) in MYSQL_LOST


def _text(error: BaseException) -> str:
    if isinstance(error, pymysql.err.MySQLError) and len(error.args) > 1:
        return f"{error.args[1]} ({error.args[0]})"
    return str(error) or type(error).__name__
