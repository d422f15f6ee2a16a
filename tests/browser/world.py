"""The gateway that browser tests look at: its users, what they may call, and calls of theirs."""

import http.client
import json
import time

from tests.handlers.hub.browser import Browser
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port

PATIENCE_S = 20
PASSWORDS = {"alice": "correct horse", "carol": "a purple cow", "boss": "battery staple"}
SECRETS = {"alice": "sk-alice-of-the-browser-tests", "carol": "sk-carol-of-the-browser-tests"}
MODEL = "gpt-4.1"


class World:
    """A context: starts the gateway, ends it."""

    def __init__(self, folder, vendor):
        self.vendor, self.hub_port = vendor, free_port()
        self.gateway = Gateway(folder, {"hub.enabled": "true", "hub.port": self.hub_port})
        self._cookies = {}

    @property
    def hub_url(self):
        return f"http://{HOST}:{self.hub_port}"

    @property
    def base_url(self):
        return f"http://{HOST}:{self.gateway.port}"

    def __enter__(self):
        self.gateway.apply(self.document())
        self.gateway.start()
        deadline = time.monotonic() + PATIENCE_S
        while not self._answers():
            assert time.monotonic() < deadline, "the Hub does not answer"
            time.sleep(0.05)
        return self

    def __exit__(self, *exc):
        self.gateway.close()

    def _answers(self):
        try:
            return Browser(self.hub_port).get("/sign-in").status == 200
        except OSError:
            return False

    def document(self):
        """Two models in one group, one of them in another at half the price."""
        prices = {MODEL: ("2.00", "8.00"), "claude-sonnet-4-5": ("3.00", "15.00")}
        channel = {"vendor": "demo", "base_url": self.vendor.url, "keys": ["sk-vendor-key-4f2A"]}
        return {
            "model": [
                {"name": name, "price": {"input": i, "output": o}}
                for name, (i, o) in prices.items()
            ],
            "group": [
                {"name": "default"},
                {"name": "coding", "multiplier": "0.5", "models": ["claude-sonnet-4-5"]},
            ],
            "channel": [
                {
                    **channel,
                    "name": "openai-main",
                    "family": "chat_completions",
                    "models": {MODEL: "demo-chat"},
                },
                {
                    **channel,
                    "name": "anthropic-main",
                    "family": "messages",
                    "groups": ["default", "coding"],
                    "models": {"claude-sonnet-4-5": "demo-messages"},
                },
            ],
            "user": [
                {"name": "alice", "balance": "50", "password": PASSWORDS["alice"]},
                {"name": "carol", "balance": "5", "password": PASSWORDS["carol"]},
                {"name": "boss", "role": "admin", "password": PASSWORDS["boss"]},
            ],
            "key": [
                {"user": "alice", "name": "laptop", "group": "default", "secret": SECRETS["alice"]},
                {"user": "carol", "name": "editor", "group": "default", "secret": SECRETS["carol"]},
            ],
        }

    def cookies_of(self, name):
        """The session of a user, begun once."""
        if name not in self._cookies:
            browser = Browser(self.hub_port)
            assert browser.sign_in(name, PASSWORDS[name]).status == 303
            self._cookies[name] = browser.cookies["sluice_session"]
        cookie = {"name": "sluice_session", "value": self._cookies[name], "url": self.hub_url}
        return [cookie]

    def call(self, user="alice", model=MODEL, prompt="hello", *, secret=None, path=None, **fields):
        """A chat-completions call of a user: (status, body)."""
        body = {"model": model, "messages": [{"role": "user", "content": prompt}], **fields}
        connection = http.client.HTTPConnection(HOST, self.gateway.port, timeout=PATIENCE_S)
        try:
            connection.request(
                "POST",
                path or "/v1/chat/completions",
                json.dumps(body),
                {
                    "Authorization": f"Bearer {secret or SECRETS[user]}",
                    "Content-Type": "application/json",
                },
            )
            answer = connection.getresponse()
            return answer.status, answer.read().decode()
        finally:
            connection.close()
