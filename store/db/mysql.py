"""MySQL servers: sessions with them, and the choice of the writing host among several.

A single host, a server or a proxy that chooses, is used as it is. With several hosts, the row of
`writing_host` names the one that all processes write to and read from, with an epoch that counts
its moves. A process that cannot reach that host twice, a second apart, moves the row by
compare-and-set to the next host that takes writes. The others follow the row, which they read with
each new session and once a second. There is no automatic move back (ADR 0045).

For database.py, which translates the driver's errors raised here into the store's own.
"""

import contextlib
import importlib
import logging
import math
import socket
import threading
import time
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl, unquote, unquote_to_bytes

import peewee
import pymysql.constants.CLIENT
import pymysql.err

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S = 5
READ_TIMEOUT_S = 20
WRITE_TIMEOUT_S = 20
LOCK_WAIT_S = 5
PATIENT_S = 600
"""A longer read timeout means that a command uses the database. Its sessions live as long as it
does."""
SESSION_MAX_S = 300.0
"""The maximum age of a session at its next transaction. A new session resolves the name anew."""
READ_ONLY_CHECK_S = 5.0
"""The maximum age of a session with a server that takes no writes."""
PORT = 3306
TLS_FAILED = 2026

_SESSION = (
    # Strict: values that do not fit are errors and never cut. ANSI_QUOTES: "group" quotes on both.
    "SET SESSION sql_mode = "
    "'STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,ANSI_QUOTES'",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    f"SET SESSION innodb_lock_wait_timeout = {LOCK_WAIT_S}",
)
# A host of a cluster may lag behind what another one has acknowledged. Each session waits for it
# once; after that, everything is read and written there.
_CATCH_UP = (
    "SET SESSION wsrep_sync_wait = 1",
    "SELECT 1",
    "SET SESSION wsrep_sync_wait = 0",
)

PROBE_INTERVAL_S = 1.0
PROBE_LIMIT_S = 2.0  # to connect, and for an answer
FAILURES = 2
"""The number of consecutive failed probes after which a host counts as dead."""
MOVE_LIMIT_S = 10.0  # a cluster that has lost a node commits nothing for some 6 s

NO_TABLE = 1146
NOT_PRIMARY = 1047
READ_ONLY = 1290
DEAD = frozenset({NOT_PRIMARY, READ_ONLY, 0, 1053, 1792, 1836, 2002, 2003, 2006, 2013, 2014, 2055})
"""The errors by which a host counts as dead: it does not answer, or takes no writes. A host that
has no room for a session, or refuses the login, is alive."""

_STATE = (
    "SHOW GLOBAL STATUS WHERE Variable_name IN ('wsrep_ready', 'wsrep_cluster_status',"
    " 'wsrep_cluster_size', 'wsrep_local_state_comment', 'wsrep_flow_control_paused')"
)
# Names of MariaDB and MySQL, old and new. The server does not refuse a user who may write despite
# them, and that user would write where nobody reads any more.
_SWITCHES = (
    "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('wsrep_on', 'read_only', 'super_read_only',"
    " 'innodb_read_only', 'tx_read_only', 'transaction_read_only') AND Value NOT IN ('OFF', '0')"
)
_ROW = "SELECT host, epoch FROM writing_host WHERE name = 'store'"
_MOVE = "UPDATE writing_host SET host = %s, epoch = epoch + 1 WHERE name = 'store' AND epoch = %s"


@dataclass(frozen=True, slots=True)
class Host:
    """A server of the store by its address, which is without brackets for IPv6."""

    address: str
    port: int

    @property
    def name(self) -> str:
        """Return the host as the row and messages name it."""
        address = f"[{self.address}]" if ":" in self.address else self.address
        return f"{address}:{self.port}"


@dataclass(frozen=True, slots=True)
class HostState:
    """The state that a host reports. `primary`: it has the majority of its cluster, or is in none.
    `size`: the cluster's size, None without one. `paused`: the part of the time since the last
    query in which flow control stopped its writes. `error`: why it does not answer."""

    name: str
    primary: bool = False
    writable: bool = False
    size: int | None = None
    comment: str = ""
    paused: float | None = None
    error: str = ""

    @property
    def serves(self) -> bool:
        """Return whether the host may be the writing host."""
        return self.primary and self.writable


@dataclass(frozen=True, slots=True)
class WritingHost:
    """The row: the writing host's name, empty if none was chosen, and its epoch."""

    host: str
    epoch: int


Connect = Callable[[Host, float], Any]
"""Opens a connection of the driver to a host. The seconds bound each of its answers."""


def switches(connection: Any) -> frozenset[str]:
    """Return which of `wsrep_on` and the switches that refuse writes are on."""
    with connection.cursor() as cursor:
        cursor.execute(_SWITCHES)
        return frozenset(name for name, _ in cursor.fetchall())


def state_of(connection: Any, name: str) -> HostState:
    """Return the state of a host that answers."""
    on = switches(connection)
    writable = not on - {"wsrep_on"}
    if "wsrep_on" not in on:
        return HostState(name, primary=True, writable=writable)
    with connection.cursor() as cursor:
        cursor.execute(_STATE)
        values = {key.removeprefix("wsrep_"): value for key, value in cursor.fetchall()}
    return HostState(
        name,
        primary=values.get("cluster_status") == "Primary" and values.get("ready") == "ON",
        writable=writable,
        size=int(values.get("cluster_size") or 0),
        comment=values.get("local_state_comment", ""),
        paused=float(values.get("flow_control_paused") or 0),
    )


def read_row(connection: Any) -> WritingHost | None:
    """Return the row, or None in a store of an earlier version."""
    try:
        with connection.cursor() as cursor:
            cursor.execute(_ROW)
            row = cursor.fetchone()
    except pymysql.err.ProgrammingError as error:
        if error.args[0] != NO_TABLE:
            raise
        return None
    return WritingHost(row[0], int(row[1])) if row else None


def move(connection: Any, host: Host, epoch: int) -> bool:
    """Make a host the writing one, unless the row was moved since that epoch. In autocommit."""
    with connection.cursor() as cursor:
        return int(cursor.execute(_MOVE, (host.name, epoch))) == 1


class Hosts:
    """The hosts of `store.url` in order. `current` is the one that this process uses, `states` what
    the watch last saw of each. For any thread."""

    def __init__(self, hosts: Sequence[Host], connect: Connect) -> None:
        self.all = tuple(hosts)
        self.current = self.all[0]
        self.states: dict[str, HostState] = {}
        self._connect = connect
        self._by_name = {host.name: host for host in self.all}
        self._lock = threading.Lock()
        self._failures = 0  # consecutive, of the current host
        self._failed_at = 0.0
        self._is_used = False  # a session was opened with one of them
        self._refusal: tuple[float, pymysql.err.MySQLError] | None = None

    @property
    def several(self) -> bool:
        """Return whether there is a choice."""
        return len(self.all) > 1

    @property
    def is_dead(self) -> bool:
        """Return whether the current host has failed so often that it must be replaced."""
        return self.several and self._failures >= FAILURES

    def agrees(self, connection: Any, host: Host) -> bool:
        """Return whether a new session is with the host that all processes use. If not, `current`
        has changed. The first session of a new store chooses its host."""
        row = read_row(connection)
        if row is not None and not row.host:
            move(connection, host, row.epoch)
            row = read_row(connection)
        if self._follow(row, host):
            return False
        self._failures, self._is_used = 0, True
        return True

    def may_replace(self, error: pymysql.err.MySQLError) -> bool:
        """Return whether a host may be replaced after this error, which prevented a session."""
        return self.several and error.args[0] in DEAD

    def replace(self, failed: Host) -> None:
        """Change to another host than the one with which a session could not be opened, or keep it
        if it answers again. Takes seconds. Raises the driver's errors if no host is available."""
        with self._lock:
            if self.current != failed:
                return
            if self._refusal is not None and time.monotonic() < self._refusal[0]:
                raise self._refusal[1]
            try:
                if not self._is_moved(failed) and self._is_dead(failed):
                    self._move_from(failed)
            except pymysql.err.MySQLError as error:
                self._refusal = time.monotonic() + PROBE_INTERVAL_S, error
                raise

    def look(self, host: Host) -> HostState:
        """Return the state of a host, by a connection of its own."""
        try:
            with self._connected(host) as connection:
                return state_of(connection, host.name)
        except pymysql.err.MySQLError as error:
            return HostState(host.name, error=str(error.args[-1]))

    def watch(self, cut: Callable[[Host], None]) -> None:
        """Watch the writing host in a thread, for as long as the process lives. `cut` ends all
        sessions with a dead host, including those that wait for an answer."""
        threading.Thread(target=self._watch, args=(cut,), name="store-hosts", daemon=True).start()

    def _watch(self, cut: Callable[[Host], None]) -> None:
        turn = 0
        while True:
            began = time.monotonic()
            self._look_at_current(cut)
            rest = [host for host in self.all if host != self.current]
            if rest:  # only one in each round, since a frozen host takes long
                turn += 1
                other = rest[turn % len(rest)]
                self.states[other.name] = self.look(other)
            time.sleep(max(0.0, began + PROBE_INTERVAL_S - time.monotonic()))

    def _look_at_current(self, cut: Callable[[Host], None]) -> None:
        host = self.current
        try:
            with self._connected(host) as connection:
                self._probe(host, connection)
                row = read_row(connection)
            self._follow(row, host)
            self._failures = 0
        except pymysql.err.MySQLError as error:
            self.states[host.name] = HostState(host.name, error=str(error.args[-1]))
            if error.args[0] not in DEAD or self._count_failure() < FAILURES:
                return
            cut(host)
            with contextlib.suppress(pymysql.err.MySQLError):  # the sessions report this, too
                self.replace(host)

    @contextlib.contextmanager
    def _connected(self, host: Host, limit_s: float = PROBE_LIMIT_S) -> Iterator[Any]:
        connection = self._connect(host, limit_s)
        try:
            yield connection
        finally:
            connection.close()

    def _probe(self, host: Host, connection: Any) -> None:
        """Raise the driver's error unless a host may be the writing one."""
        state = self.states[host.name] = state_of(connection, host.name)
        if not state.primary:
            raise pymysql.err.OperationalError(NOT_PRIMARY, f"{host.name} has no majority")
        if not state.writable:
            raise pymysql.err.OperationalError(READ_ONLY, f"{host.name} is read-only")

    def _follow(self, row: WritingHost | None, host: Host) -> bool:
        """Change to the host that the row names, if it is another one of ours. Return whether it
        is."""
        named = self._by_name.get(row.host, host) if row else host
        if named == host:
            return False
        self._turn_to(named)
        return True

    def _turn_to(self, host: Host) -> None:
        if self.current != host:
            # A command starts with the first host of the list, so what it reads next is not a
            # change.
            level = logging.WARNING if self._is_used else logging.DEBUG
            text = "the store is written to at %s, no longer at %s"
            log.log(level, text, host.name, self.current.name)
        self.current, self._failures = host, 0

    def _count_failure(self) -> int:
        """Count a failure of the current host, at most once in an interval. Return the number of
        consecutive failures."""
        now = time.monotonic()
        if not self._failures or now >= self._failed_at + PROBE_INTERVAL_S * 0.9:
            self._failures, self._failed_at = self._failures + 1, now
        return self._failures

    def _after(self, failed: Host) -> tuple[Host, ...]:
        place = self.all.index(failed)
        return (*self.all[place + 1 :], *self.all[:place])

    def _is_moved(self, failed: Host) -> bool:
        """Return whether the row, as another host has it, now names another host."""
        for host in self._after(failed):
            with contextlib.suppress(pymysql.err.MySQLError), self._connected(host) as connection:
                return self._follow(read_row(connection), failed)
        return False

    def _is_dead(self, failed: Host) -> bool:
        while self._count_failure() < FAILURES:
            time.sleep(max(0.0, self._failed_at + PROBE_INTERVAL_S - time.monotonic()))
            try:
                with self._connected(failed) as connection:
                    self._probe(failed, connection)
            except pymysql.err.MySQLError as error:
                if error.args[0] in DEAD:
                    continue
            self._failures = 0
            return False
        return True

    def _move_from(self, failed: Host) -> None:
        """Move the row to the next host that takes writes, or follow if another process has moved
        it."""
        errors = []
        for host in self._after(failed):
            try:
                with self._connected(host, MOVE_LIMIT_S) as connection:
                    self._probe(host, connection)
                    row = read_row(connection)
                    if self._follow(row, failed):
                        return
                    if row is None or move(connection, host, row.epoch):
                        self._turn_to(host)
                        return
                    if self._follow(read_row(connection), failed):
                        return
            except pymysql.err.MySQLError as error:
                errors.append(f"{host.name}: {error.args[-1]}")
        raise pymysql.err.OperationalError(
            NOT_PRIMARY,
            f"{failed.name} does not answer, and none else can be written to: {'; '.join(errors)}",
        )


class TakesNoWrites(pymysql.err.OperationalError):  # type: ignore[misc]
    """A refusal to send a write to a server that is known to take none."""


@dataclass(frozen=True, slots=True)
class _Session:
    """A thread's session with a host. `epoch` counts how often all sessions had been given up
    before it."""

    opened_at: float
    epoch: int
    read_only: bool
    host: Host


class _Own(threading.local):
    """The session of each thread."""

    session: _Session | None = None


class MySql(peewee.MySQLDatabase):
    """A MySQL database whose sessions end by age and when the writing host changes. All of them end
    when one server refuses a write: after a planned switchover the name resolves to another server,
    and the old one must not be read any more.

    `retries` counts repeated transactions by the driver's error code. `is_patient` is for a command
    that waits long for one answer. Code that alters a table prepares that in its session.
    """

    retries: Counter[str]
    is_patient = False

    def __init__(self, name: str, hosts: tuple[Host, ...], **options: Any) -> None:
        self.hosts = Hosts(hosts, self._connect_to)
        self._epoch = 0
        self._own = _Own()
        self._open: weakref.WeakKeyDictionary[Any, Host] = weakref.WeakKeyDictionary()
        self._open_lock = threading.Lock()  # protects the dictionary
        super().__init__(name, **options)

    def watch_hosts(self) -> None:
        """Start watching the writing host, if there are several hosts. For long-running
        processes."""
        if self.hosts.several:
            self.hosts.watch(self._cut)

    def renew(self) -> None:
        """Close this thread's session if it is too old or outdated. Not inside a transaction."""
        session = self._own.session
        if session is None or self.is_closed():
            return
        limit_s = READ_ONLY_CHECK_S if session.read_only else SESSION_MAX_S
        if self.is_patient:
            limit_s = math.inf
        is_old = time.monotonic() - session.opened_at >= limit_s
        if is_old or session.epoch != self._epoch or session.host != self.hosts.current:
            with contextlib.suppress(peewee.PeeweeException, pymysql.err.MySQLError):
                self.close()

    def require_writable(self) -> None:
        """Raise TakesNoWrites if the server of this thread's session takes none. Raises the
        driver's errors if there is no server."""
        self.connect(reuse_if_open=True)
        session = self._own.session
        if session is not None and session.read_only:
            remedy = f"make it writable, or let {session.host.address} lead to one that is"
            raise TakesNoWrites(f"the server is read-only; {remedy}")

    def give_up_sessions(self) -> None:
        """End every thread's session before its next transaction, because a server has refused a
        write."""
        session = self._own.session
        if session is not None and session.epoch == self._epoch:  # else another thread has done it
            self._epoch += 1

    def _cut(self, host: Host) -> None:
        """End all sessions with a host, including those in which a thread waits for an answer.
        Shuts the socket down, which is safe from another thread, and does not close it."""
        with self._open_lock:
            sessions = list(self._open.items())
        for connection, where in sessions:
            if where == host and (sock := connection._sock) is not None:
                try:
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)
                except OSError:  # it has ended already
                    pass

    def _connect(self) -> Any:
        """Open a session with the current writing host."""
        hosts = self.hosts
        for _ in range(len(hosts.all)):
            if hosts.is_dead:
                hosts.replace(hosts.current)
            host = hosts.current
            try:
                connection = self._open_session(host)
                if connection is not None:
                    return connection
            except pymysql.err.MySQLError as error:
                if not hosts.may_replace(error):
                    raise
                hosts.replace(host)
        return self._open_session(hosts.current, last=True)

    def _open_session(self, host: Host, *, last: bool = False) -> Any:
        """Return a session with a host, ready for use, or None if all now use another host."""
        epoch = self._epoch  # before the name is resolved
        connection = self._connect_to(host)
        with self._open_lock:  # before its set-up, since a host may freeze during that
            self._open[connection] = host
        try:
            with connection.cursor() as cursor:
                for statement in _SESSION:
                    cursor.execute(statement)
                # In a transaction, since a proxy that splits reads from writes then asks the
                # writer.
                connection.begin()
                on = switches(connection)
                connection.rollback()
                for statement in _CATCH_UP if "wsrep_on" in on else ():
                    cursor.execute(statement)
            read_only = bool(on - {"wsrep_on"})
            if self.hosts.several and not last:
                if read_only:
                    raise TakesNoWrites(READ_ONLY, f"{host.name} is read-only")
                if not self.hosts.agrees(connection, host):
                    connection.close()
                    return None
        except pymysql.err.MySQLError:
            connection.close()
            raise
        self._own.session = _Session(time.monotonic(), epoch, read_only, host)
        return connection

    def _connect_to(self, host: Host, limit_s: float | None = None) -> Any:
        """Open a connection to a host. `limit_s` bounds connecting and each answer."""
        options = dict(self.connect_params)
        read_timeout_s = limit_s or options["read_timeout"]
        # This bounds each answer of the login, too: a frozen host accepts connections.
        options["read_timeout"] = options["connect_timeout"] = limit_s or options["connect_timeout"]
        place = {"host": host.address, "port": host.port, "database": self.database}
        try:
            try:
                connection = pymysql.connect(**place, autocommit=True, **options)
            except RuntimeError:  # a login that encrypts the password (lean_driver.py)
                importlib.reload(pymysql._auth)
                connection = pymysql.connect(**place, autocommit=True, **options)
            connection._read_timeout = read_timeout_s
            return connection
        except OSError as error:  # the file of certificates cannot be read
            raise pymysql.err.OperationalError(TLS_FAILED, f"ssl_ca: {error}") from error


def open_mysql(url: str, connect_timeout_s: float, read_timeout_s: float) -> MySql:
    """Return the database of an address. Raises ValueError for an invalid one.

    `mysql://user:password@host:port,host:port/database?ssl_ca=FILE&ssl_verify_identity=true`: user
    and password percent-encoded, one host or several. With `ssl_ca`, sessions are encrypted and the
    server's certificate must be signed by one in that file. With `ssl_verify_identity`, it must
    also match the host's name.
    """
    login, _, place = url.removeprefix("mysql://").rpartition("@")
    user, _, password = login.partition(":")
    addresses, _, rest = place.partition("/")
    name, _, query = rest.partition("?")
    options = dict(parse_qsl(query, keep_blank_values=True))
    unknown = options.keys() - {"ssl_ca", "ssl_verify_identity"}
    if not addresses or not name or "/" in name or "#" in place or unknown:
        raise ValueError("store.url must look like mysql://user:password@host:port/database")
    tls = {}
    if options:
        verify = options.get("ssl_verify_identity") == "true"
        tls = {"ssl_ca": options.get("ssl_ca"), "ssl_verify_cert": True}
        tls["ssl_verify_identity"] = verify
    db = MySql(
        unquote(name),
        tuple(map(_host, addresses.split(","))),
        user=unquote(user),
        # Bytes, since a text would be sent in Latin-1, which lacks most characters.
        password=unquote_to_bytes(password),
        charset="utf8mb4",
        field_types={"LONGTEXT": "MEDIUMTEXT", "DIGEST": "BINARY(32)"},
        connect_timeout=connect_timeout_s,
        read_timeout=read_timeout_s,
        write_timeout=WRITE_TIMEOUT_S,
        # rowcount of an UPDATE = rows found, as SQLite counts, not rows altered.
        client_flag=pymysql.constants.CLIENT.FOUND_ROWS,
        **tls,
    )
    db.is_patient = read_timeout_s > PATIENT_S
    return db


def _host(text: str) -> Host:
    """Parse a host of the store's address."""
    address, _, port = text.rpartition(":")
    if not port.isdecimal():
        address, port = text, ""
    return Host(address.strip("[]"), int(port or PORT))
