"""The Hub's application on a real port, over a SQLite store with two users."""

import asyncio
import json
import socket
import threading
from ipaddress import ip_network
from pathlib import Path

import pytest
from msgspec.structs import replace

from conf.settings import Settings
from handlers.hub.app import make_app
from handlers.hub.http.server import HubServer
from handlers.hub.web import relay_calls
from handlers.hub.web.site import Site
from handlers.hub.web.unfinished import Unfinished
from operations.edits import editor
from store.admin.document import parse
from store.db.database import discard, open_database
from store.db.migrate import up
from store.hub import sessions, tokens
from store.money import wallet
from store.values.grants import GrantMaker
from tests.handlers.hub.browser import PASSWORDS, Browser
from tests.handlers.hub.overview_world import SEALING, edit
from tests.handlers.hub.relay import Relay
from tests.handlers.hub.script import Script
from tests.support.ports import HOST, free_port

COOKIE_SECRETS = ["cookie secret of the tests"]
DOCUMENT = f"""
[[group]]
name = "default"
[[user]]
name = "alice"
balance = "10"
password = "{PASSWORDS["alice"]}"
[[user]]
name = "boss"
role = "admin"
password = "{PASSWORDS["boss"]}"
"""


class Served:
    """An application that runs in a thread with a loop of its own."""

    def __init__(self, site):
        self.site, self.port = site, free_port()
        self._loop = asyncio.new_event_loop()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(10)

    def _run(self):
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._serve())
        self._loop.close()

    async def _serve(self):
        self._ended = asyncio.Event()
        self._ending = asyncio.create_task(self._ended.wait())
        self.server = HubServer(self.site, make_app(self.site))
        with socket.create_server((HOST, self.port), backlog=4096) as listener:
            listener.setblocking(False)
            self.server.listen_on(listener)
            self._ready.set()
            while not self._ended.is_set():
                self.server.sweep(int(self._loop.time()))
                await asyncio.wait([self._ending], timeout=0.2)
            self._loop.remove_reader(listener)

    def signed_in(self, name):
        """Return the browser of a user whose session was inserted as a row, without a sign-in."""
        browser, db = Browser(self.port), self.site.db
        user_id = wallet.find_owner(db, name).id
        browser.cookies["sluice_session"] = sessions.begin(db, user_id, HOST, "")
        browser.get("/account")
        return browser

    def close(self):
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join(10)
        self.site.close()


@pytest.fixture(scope="session")
def filled_store(tmp_path_factory):
    """Return the path of a store that tests copy, because hashing passwords takes time."""
    path = tmp_path_factory.mktemp("hub") / "filled.db"
    db = open_database(f"sqlite:///{path}")
    up(db)
    editor(db, SEALING, "tester").apply(parse(DOCUMENT, {}, path.parent))
    discard(db)
    return path


@pytest.fixture
def db(filled_store, tmp_path):
    path = tmp_path / "sluice.db"
    path.write_bytes(filled_store.read_bytes())
    db = open_database(f"sqlite:///{path}")
    yield db
    discard(db)


@pytest.fixture
def world(db, tmp_path):
    """Create groups, models, a channel and a third user."""
    edit(db, tmp_path)


@pytest.fixture
def apply(db):
    """Return apply(document), which does what the command does."""

    def bring(document):
        editor(db, SEALING, "tester").apply(parse(json.dumps(document), {}, Path.cwd()))

    return bring


SUMS_PATIENCE_S = 20  # pages always have their sums, however busy the machine


@pytest.fixture
def serve(db):
    """Return serve(section=fields …): the Hub with these settings; all end with the test."""
    running = []

    def start(**sections):
        settings = Settings()
        changed = {
            name: replace(getattr(settings, name), **given) for name, given in sections.items()
        }
        settings = replace(settings, **changed)
        site = Site(
            settings=settings,
            db=db,
            sealing=SEALING,
            trusted=tuple(map(ip_network, settings.server.trusted_proxies)),
            cookie_secrets=COOKIE_SECRETS,
            grants=GrantMaker(COOKIE_SECRETS, "run"),
            unfinished=Unfinished(patience_s=SUMS_PATIENCE_S),
        )
        running.append(Served(site))
        return running[-1]

    yield start
    for one in running:
        one.close()


@pytest.fixture
def hub(serve):
    return serve()


@pytest.fixture
def relay():
    """Yield a relay that the test controls."""
    made = Relay()
    yield made
    made.close()


@pytest.fixture
def with_relay(serve, relay, monkeypatch):
    """Return the Hub in front of that relay; its base URL is https://gate.example.com."""
    monkeypatch.setattr(relay_calls, "RECORD_WAIT_S", 0.3)
    public = "https://gate.example.com"
    return serve(server={"port": relay.port, "public_url": public}, hub={"public_url": ""})


@pytest.fixture
def browser(hub):
    """Return a browser that has not signed in."""
    return Browser(hub.port)


@pytest.fixture
def alice(hub):
    return hub.signed_in("alice")


@pytest.fixture
def key(alice):
    """Return a key of alice in the group coding."""
    return alice.make("laptop", group="coding")


@pytest.fixture
def boss(hub):
    """Return the browser of an administrator."""
    return hub.signed_in("boss")


@pytest.fixture
def carol(hub, world):
    """Return a member of only the group default, in a world of groups and models."""
    return hub.signed_in("carol")


@pytest.fixture
def api(hub, db):
    """Return a script of the administrator boss."""
    _, token = tokens.create(db, "boss", ["admin"], actor="tester")
    return Script(hub.port, token)
