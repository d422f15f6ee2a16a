"""The gateway of the browser tests: its users, what they may call, and their calls."""

import json

from tests.handlers.hub.browser import Browser
from tests.support.client import exchange, wait_until
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port

PATIENCE_S = 20
PASSWORDS = {"alice": "correct horse", "carol": "a purple cow", "boss": "battery staple"}
SECRETS = {"alice": "sk-alice-of-the-browser-tests", "carol": "sk-carol-of-the-browser-tests"}
MODEL = "gpt-4.1"


class World:
    """A context manager that starts the gateway and ends it."""

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
        assert wait_until(self._answers, PATIENCE_S), "the Hub does not answer"
        return self

    def __exit__(self, *exc):
        self.gateway.close()

    def _answers(self):
        try:
            return Browser(self.hub_port).get("/sign-in").status == 200
        except OSError:
            return False

    def document(self):
        """Return a document with two models in one group, one of them in another at half the
        price."""
        prices = {MODEL: ("2.00", "8.00"), "claude-sonnet-4-5": ("3.00", "15.00")}
        channel = {"vendor": "demo", "base_url": self.vendor.url, "keys": ["sk-vendor-key-4f2A"]}
        chat = {"family": "chat_completions", "models": {MODEL: "demo-chat"}}
        messages = {"family": "messages", "models": {"claude-sonnet-4-5": "demo-messages"}}
        coding = {"multiplier": "0.5", "models": ["claude-sonnet-4-5"]}
        users = {"alice": {"balance": "50"}, "carol": {"balance": "5"}, "boss": {"role": "admin"}}
        keys = {"alice": "laptop", "carol": "editor"}
        return {
            "model": [
                {"name": name, "price": {"input": i, "output": o}}
                for name, (i, o) in prices.items()
            ],
            "group": [{"name": "default"}, {"name": "coding", **coding}],
            "channel": [
                {**channel, "name": "openai-main", **chat},
                {**channel, "name": "anthropic-main", "groups": ["default", "coding"], **messages},
            ],
            "user": [
                {"name": name, "password": PASSWORDS[name], **fields}
                for name, fields in users.items()
            ],
            "key": [
                {"user": user, "name": name, "group": "default", "secret": SECRETS[user]}
                for user, name in keys.items()
            ],
        }

    def cookies_of(self, name):
        """Return the cookies of a user's session, which is created once."""
        if name not in self._cookies:
            browser = Browser(self.hub_port)
            assert browser.sign_in(name, PASSWORDS[name]).status == 303
            self._cookies[name] = browser.cookies["sluice_session"]
        cookie = {"name": "sluice_session", "value": self._cookies[name], "url": self.hub_url}
        return [cookie]

    def call(self, user="alice", model=MODEL, prompt="hello", *, path="/v1/chat/completions"):
        """Make a user's chat completions call; return its status."""
        body = {"model": model, "messages": [{"role": "user", "content": prompt}]}
        headers = {"Authorization": f"Bearer {SECRETS[user]}", "Content-Type": "application/json"}
        return exchange(self.gateway.port, "POST", path, headers, json.dumps(body).encode()).status


LONG = {
    kind: (kind * 64)[:128]
    for kind in ("member", "admin", "key", "group", "model", "channel", "plan", "upstream")
}
PASSWORDS |= {LONG["member"]: PASSWORDS["alice"], LONG["admin"]: PASSWORDS["boss"]}
SECRETS[LONG["member"]] = "sk-member-of-the-browser-tests"


class LongWorld(World):
    """The same world with an object of each kind whose name has the maximum length."""

    def document(self):
        document = super().document()
        member, model, group = LONG["member"], LONG["model"], LONG["group"]
        document["model"].append({"name": model, "price": {"input": "2.00", "output": "8.00"}})
        document["group"].append({"name": group, "multiplier": "0.5"})
        document["channel"].append(
            {
                **{"name": LONG["channel"], "vendor": "demo", "base_url": self.vendor.url},
                **{"keys": ["sk-vendor-key-4f2A", "sk-vendor-key-4f2B"]},
                **{"family": "chat_completions", "groups": ["default", group]},
                "models": {model: "demo-chat", MODEL: LONG["upstream"]},
            }
        )
        document["user"] += [
            {
                **{"name": member, "password": PASSWORDS[member], "balance": "3"},
                "groups": ["default", "coding", group],
            },
            {"name": LONG["admin"], "password": PASSWORDS[LONG["admin"]], "role": "admin"},
        ]
        limit = {"limit": "0.0015", "limit_window": "month"}
        key = {"user": member, "name": LONG["key"], "group": group, "secret": SECRETS[member]}
        document["key"] += [{**key, **limit}, {"user": member, "name": "short", "group": "default"}]
        document["plan"] = [{"name": LONG["plan"], "quota": "0.0015", "window": "month"}]
        document["subscription"] = [{"user": member, "plan": LONG["plan"]}]
        return document

    def fill(self):
        """Make calls of each outcome, a code and what else pages show; return identifiers of
        objects by their kind (see pages.py)."""
        member, model = LONG["member"], LONG["model"]
        for prompt in ("hello", "[[demo status=503]]", "a long prompt " * 400):
            self.call(member, model, prompt)
        self.call(member, "no-such-" + model[:100])
        self.call(member, model, path="/v1/v1/chat/completions")
        admin, user = Browser(self.hub_port), Browser(self.hub_port)
        admin.sign_in(LONG["admin"], PASSWORDS[LONG["admin"]])
        user.sign_in(member, PASSWORDS[member])
        admin.get("/account")
        code = admin.api("POST", "/api/admin/codes", {"count": 1, "amount": "5"})
        assert code.status == 201, code.text
        invite = admin.api("POST", "/api/admin/invites", {"groups": [LONG["group"]]})
        assert invite.status == 201, invite.text
        user.get("/account")
        place = {
            "name": "ops " + "x" * 120,
            "kind": "webhook",
            "address": "https://h.example/" + "x" * 200,
        }
        rule = {"kind": "spending", "settings": {"of": "key", "names": [LONG["key"]], "above": "0"}}
        alerts = {}
        for browser, of in ((admin, "gateway"), (user, "me")):
            made = browser.api("POST", f"/api/alerts/destinations?of={of}", place)
            assert made.status == 201, made.text
            body = {**rule, "destinations": [made.json["id"], "owner"]}
            ruled = browser.api("POST", f"/api/alerts/rules?of={of}", body)
            assert ruled.status == 201, ruled.text
            alerts = {"destination": made.json["id"], "rule": ruled.json["id"], "message": "x"}
        keys = {one["name"]: one["id"] for one in user.api("GET", "/api/keys").json["items"]}

        def calls():
            return user.api("GET", "/api/usage?limit=10").json["items"]

        assert wait_until(lambda: len(calls()) == 4, PATIENCE_S)
        failed = next(call for call in calls() if call["outcome"] == "upstream_error")
        names = {kind: LONG[kind] for kind in ("group", "model", "channel", "plan")}
        return {
            **names,
            **{"user": member, "key": keys[LONG["key"]], "call": failed["id"]},
            **{"code": code.json["items"][0]["id"], "invite": invite.json["id"], **alerts},
        }
