"""Pictures of the Hub's pages, as docs/hub.md shows them: at three widths, light and dark.

    python -m tools.bench.hub_pictures --into docs/pictures

Creates a gateway in its own folder with the store of hub_sample.py and a scripted vendor, and
drives Debian's Chromium. `--only keys,usage` selects some of the pages.
"""

import itertools
import json
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from playwright.sync_api import Browser, Page, sync_playwright

from commands.process.node import FOLDER_MODE, NAME_FILE
from tests.handlers.hub.browser import Browser as Plain
from tests.support.gateway import Gateway
from tests.support.ports import HOST, free_port
from tests.support.upstream import ScriptedUpstream
from tools.bench import hub_sample

HEIGHTS = {1440: 960, 768: 1000, 360: 740}
NODE = "gateway-1"
PATIENCE_S = 30
SETTLE_MS = 600


@dataclass(frozen=True, slots=True)
class Shot:
    """A picture: the user, the page, and the steps before it. A step is a selector to click, or
    `selector = text` to fill in."""

    name: str
    user: str
    path: str
    steps: tuple[str, ...] = ()


SHOTS = (
    Shot("sign-in", "", "/sign-in"),
    Shot("home", "alice", "/"),
    Shot("keys", "alice", "/keys"),
    Shot("key", "alice", "/keys/{key}"),
    Shot("key-new", "alice", "/keys", ("a[data-new]",)),
    Shot("key-made", "alice", "/keys/new", ("#name = studio{n}", "main button.primary")),
    Shot("models", "alice", "/models?group=coding"),
    Shot("model", "alice", "/models/claude-sonnet-4-5?group=coding"),
    Shot("usage", "alice", "/usage"),
    Shot("usage-groups", "admin", "/usage?of=all&by=model&since=30d"),
    Shot("usage-dates", "admin", "/usage?of=all&by=user&since=30d", ("[data-dates] summary",)),
    Shot("call", "alice", "/usage?model=claude-sonnet-4-5", ("main tr.row a",)),
    Shot("call-failed", "alice", "/usage/{failed}"),
    Shot("call-retried", "alice", "/usage/{retried}"),
    Shot("wallet", "alice", "/wallet"),
    Shot("setup", "alice", "/setup"),
    Shot(
        *("try", "alice", "/try"),
        ("#try-prompt = Find payouts that were sent twice, yesterday only.", "[data-send]"),
    ),
    Shot(
        *("try-compare", "alice", "/try?with=*"),
        ("#try-prompt = Find payouts that were sent twice, yesterday only.", "[data-send]"),
    ),
    Shot("alerts", "admin", "/alerts"),
    Shot("alerts-rule", "admin", "/alerts", ("a[data-new]", ".rule-kinds a[href*=spending]")),
    Shot("find", "alice", "/usage", ("a[data-find-all]", "dialog [name=q] = claude")),
    Shot("account", "alice", "/account"),
    *(
        Shot(f"admin-{name}", "admin", f"/admin/{name}")
        for name in ("users", "groups", "models", "plans", "codes", "usage", "audit", "system")
    ),
    Shot(*("new-channel", "admin", "/admin/channels/new"), ("label.vendor:has([value=mistral])",)),
    Shot("admin-channels", "admin", "/admin/channels", ("tr.row a[aria-expanded]",)),
    Shot("prices-edit", "admin", "/admin/prices/edit"),
    Shot("prices-compare", "admin", "/admin/prices/compare"),
    Shot("admin-user", "admin", "/admin/users/alice"),
    Shot("statement", "alice", "/wallet/statement"),
    Shot("admin-invites", "admin", "/admin/invites?new=1"),
    Shot("admin-user-edit", "admin", "/admin/users/alice", ("#facts a[data-drawer]",)),
    Shot("admin-call", "admin", "/usage/{failed}"),
    Shot("overview", "admin", "/?of=gateway"),
    Shot("home-empty", "admin", "/?of=me"),
)
IN_DOCS = frozenset(
    {
        *("sign-in-1440-light", "home-1440-light", "home-360-light", "keys-1440-light"),
        *(
            "key-1440-dark",
            "key-made-1440-light",
            "models-1440-light",
            "models-360-dark",
            "model-1440-light",
        ),
        *(
            "usage-groups-1440-light",
            "usage-1440-light",
            "usage-768-dark",
            "usage-360-light",
            "call-1440-light",
        ),
        *(
            "call-failed-1440-light",
            "call-retried-1440-light",
            "wallet-1440-light",
            "setup-1440-light",
            "account-1440-light",
        ),
        *("new-channel-1440-light", "admin-user-1440-light", "statement-1440-light"),
        *("try-compare-1440-light", "admin-invites-1440-light", "find-1440-light"),
        *("alerts-1440-light", "alerts-rule-1440-light"),
        *("admin-channels-1440-dark", "admin-models-1440-light", "admin-system-1440-light"),
        *("home-empty-1440-light", "overview-1440-light", "overview-360-light"),
    }
)
"""The pictures in docs/hub.md and the README."""


@contextmanager
def gateway() -> Iterator[tuple[Gateway, str]]:
    """Yield a running gateway with the sample store, and the address of its Hub."""
    hub_port = free_port()
    with tempfile.TemporaryDirectory() as folder, ScriptedUpstream() as vendor:
        made = Gateway(Path(folder), {"hub.enabled": "true", "hub.port": hub_port})
        journal = made.folder / "journal"
        journal.mkdir(mode=FOLDER_MODE)
        (journal / NAME_FILE).write_text(NODE)  # instead of this machine's name
        argv = ["--config", str(made.config), "--vendor", vendor.url]
        hub_sample.main.main(argv, standalone_mode=False)
        made.start(wait_s=PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while not _answers(hub_port):
            if time.monotonic() > deadline:
                raise click.ClickException("the Hub does not answer")
            time.sleep(0.1)
        try:
            yield made, f"http://{HOST}:{hub_port}"
        finally:
            made.close()


def _answers(port: int) -> bool:
    try:
        return bool(Plain(port).get("/sign-in").status == 200)
    except OSError:
        return False


def ids(made: Gateway) -> dict[str, str]:
    """Return a key and the calls that pictures show."""

    def found(*args: str) -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = json.loads(made.run(*args, "--json"))
        return rows

    def newest(*filters: str) -> str:
        return str(found("usage", "tail", *filters)[-1]["id"])

    calls = found("usage", "tail", "--user", "alice", "--outcome", "ok", "--limit", "1000")

    keys = {key["name"]: key["id"] for key in found("key", "list", "--user", "alice")}
    return {
        "key": keys["ci"],
        "ok": newest("--outcome", "ok", "--model", "claude-sonnet-4-5"),
        "failed": newest("--outcome", "upstream_error"),
        "retried": next(one["id"] for one in reversed(calls) if len(one["attempts"]) > 1),
    }


@dataclass(frozen=True, slots=True)
class Camera:
    """A camera for the pictures of one gateway's Hub."""

    browser: Browser
    hub_url: str
    known: dict[str, str]
    sessions: dict[str, str]
    language: str

    def take(self, shot: Shot, width: int, theme: str, into: Path, *, whole: bool) -> None:
        """Take one picture, and print a line for each fault of its page."""
        name = f"{shot.name}-{width}-{theme}"
        context = self.browser.new_context(
            base_url=self.hub_url,
            viewport={"width": width, "height": HEIGHTS[width]},
            color_scheme="dark" if theme == "dark" else "light",
            locale="zh-CN" if self.language == "zh" else "en-GB",
            timezone_id="Europe/Berlin",
        )
        if shot.user:
            cookie = {"name": "sluice_session", "value": self.sessions[shot.user]}
            zone = {"name": "zone", "value": "Europe/Berlin"}
            context.add_cookies([{**one, "url": self.hub_url} for one in (cookie, zone)])
        page = context.new_page()
        first = (width, theme) == (max(HEIGHTS), "light")
        known = {**self.known, "n": "" if first else f"-{width}-{theme}"}
        for fault in _open(page, shot.path.format(**known)):
            click.echo(f"{name}: {fault}")
        for step in shot.steps:
            selector, fills, text = step.format(**known).partition(" = ")
            if fills:
                page.locator(selector).fill(text)
            else:
                page.locator(selector).first.click()
            page.wait_for_timeout(SETTLE_MS)
        page.screenshot(path=str(into / f"{name}.png"), full_page=whole)
        context.close()


@click.command()
@click.option("--into", type=click.Path(path_type=Path), required=True)
@click.option("--only", default="", help="Names of pictures, with commas.")
@click.option("--docs", is_flag=True, help="Those that the documents show.")
@click.option("--whole", is_flag=True, help="Whole pages, not what a window shows.")
@click.option("--language", type=click.Choice(["en", "zh"]), default="en")
def main(into: Path, only: str, docs: bool, whole: bool, language: str) -> None:
    """Take the pictures."""
    into.mkdir(parents=True, exist_ok=True)
    wanted = set(only.split(",")) if only else {shot.name for shot in SHOTS}
    with gateway() as (made, hub_url), sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium-headless-shell") or shutil.which("chromium"),
            args=["--no-sandbox", "--disable-gpu"],
        )
        sessions = {name: _session(hub_url, name) for name in ("alice", "admin")}
        camera = Camera(browser, hub_url, ids(made), sessions, language)
        for shot, width, theme in itertools.product(SHOTS, HEIGHTS, ("light", "dark")):
            if shot.name not in wanted:
                continue
            if not docs or f"{shot.name}-{width}-{theme}" in IN_DOCS:
                camera.take(shot, width, theme, into, whole=whole)
        browser.close()


def _session(hub_url: str, name: str) -> str:
    plain = Plain(int(hub_url.rpartition(":")[2]))
    plain.sign_in(name, hub_sample.PASSWORD)
    return str(plain.cookies["sluice_session"])


def _open(page: Page, path: str) -> list[str]:
    """Open a page. Return its faults."""
    faults: list[str] = []
    page.on("console", lambda one: faults.append(one.text) if one.type == "error" else None)
    page.on("pageerror", lambda error: faults.append(str(error)))
    begun = time.monotonic()
    answer = page.goto(path)
    took = time.monotonic() - begun
    page.wait_for_timeout(SETTLE_MS)
    if answer and answer.status != 200:
        faults.append(f"status {answer.status}")
    if took > 1:
        faults.append(f"{took:.2f} s")
    wide = page.evaluate("document.documentElement.scrollWidth - innerWidth")
    if wide > 0:
        faults.append(f"{wide} px wider than the window")
    return faults


if __name__ == "__main__":
    main()
