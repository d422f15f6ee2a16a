"""Generated pages are up to date; handwritten samples can be loaded."""

import re
import subprocess
from pathlib import Path

import pytest

from adapters import registry
from adapters.models import OPTIONS
from adapters.registry import FAMILY_NAMES
from conf.settings import SETTINGS
from handlers.relay.routing import breaker, health, plan, prober, suspended_keys
from operations import explain
from store.admin.kinds import KINDS
from tests.support.programs import program
from tools.docs import __main__ as docs

ROOT = Path(__file__).resolve().parents[1]
MADE = ("settings.md", "cli.md", "document.md", "conversions.md", "errors.md")


@pytest.mark.parametrize("name", [*(f"docs/{name}" for name in MADE), "conf/gateway.toml"])
def test_made_files_are_up_to_date(name):
    assert (ROOT / name).read_text() == docs.pages()[name], f"{name} is old: run make docs"


def test_every_setting_and_field_of_the_document_is_documented():
    settings = (ROOT / "docs/settings.md").read_text()
    sample = (ROOT / "conf/gateway.toml").read_text()
    for row in SETTINGS.values():
        assert f"`{row.name}`" in settings and f"\n#{row.key} = " in sample
    page = (ROOT / "docs/document.md").read_text()
    for kind, spec in KINDS.items():
        section = page.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
        assert spec.about.endswith(".")
        assert all(f"\n| `{name}` |" in section for name in spec.identity)
        for name, field in spec.fields.items():
            assert f"\n| `{name}` | {field.type.form} |" in section, name
            assert field.meaning.endswith(".") and field.meaning in section, name


WORDS = {4: "four", 10: "ten"}


def test_the_page_of_channels_says_the_numbers_that_hold():
    page = " ".join((ROOT / "docs/channels.md").read_text().split())
    window_s = f"{breaker.WINDOW_S:.0f} to {2 * breaker.WINDOW_S:.0f} s"
    for words in (
        f"half of at least {breaker.MIN_WINDOW_CALLS} calls of the last {window_s} failed",
        f"or {breaker.MAX_CONSECUTIVE_FAULTS} in a row; with fewer than"
        f" {breaker.MIN_WINDOW_CALLS} calls: {breaker.CONSECUTIVE_FAULTS}",
        f"{breaker.CONSECUTIVE_FAULTS} slow starts in a row, or {breaker.MAX_SLOW_STARTS} of the"
        f" last {breaker.MIN_WINDOW_CALLS}",
        f"for each {WORDS[health.CALLS_PER_LAST_RESORT]} calls of the last"
        f" {breaker.WINDOW_S:.0f} s, at",
        f"one without an answer for {health.LAST_RESORT_WAIT_S:.0f} s is no longer counted",
        f"{WORDS[prober.CHECKS_MAX]} for each worker, at most {prober.CHECK_S:.0f} s",
        f"not checked again for {suspended_keys.CLEARED_S:.0f} s",
        f"after {suspended_keys.NEXT_CHECK_S:.0f} s at the earliest",
        f"{breaker.COOLDOWN_S:.0f} s, doubled each time up to {breaker.COOLDOWN_MAX_S:.0f} s",
        f"{breaker.KEY_COOLDOWN_S:.0f} s, doubled each time up to"
        f" {breaker.KEY_COOLDOWN_MAX_S:.0f} s",
        f"as the vendor says, at most {health.MAX_RETRY_AFTER_S} s",
        f"takes {health.SLOW_TIMES:.0f} times as long as usual",
        f"and more than {health.SLOW_S:.0f} s",
        f"up to {breaker.JITTER:.0%} shorter".replace("%", " %"),
        f"makes room for another after {health.PROBE_S:.0f} s",
        f"After {breaker.FORGET_S:.0f} s without trouble",
    ):
        assert words in page, words
    reasons = (plan.DISABLED, plan.OTHER_GROUP, plan.OTHER_FAMILY, plan.TRANSLATE_OFF)
    for reason in (*reasons, explain.NO_COUNTING):
        assert f"`{reason}`" in page


A_FILE = re.compile(r"(?<![\w./-])((?:[\w.-]+/)+[\w-]+\.(?:py|md)|conf/[\w.-]*\w)\b")
WRITTEN = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_channels_has_the_order_of_families_and_every_option():
    page = (ROOT / "docs/channels.md").read_text()
    table = page.partition("## Calls of other families")[2].partition("## Fail-over")[0]
    shown = {}
    for client in FAMILY_NAMES:
        [row] = re.findall(rf"^\| {client} \| (.*) \|$", table, re.M)
        for place, names in enumerate(row.split(" | "), 1):
            shown |= {(client, name): place for name in re.findall(r"\w+", names)}
    assert shown == registry.LOSSES
    options = table.partition("## Edits of requests")[0].splitlines()
    for name, form in OPTIONS.items():
        [row] = [line for line in options if re.match(rf"\|.*`{name}`.*\| ", line)]
        words = re.sub("^one of |^a list of at least one, each one of ", "", form).split(", ")
        assert all(word in row for word in words if word.isidentifier()), name


def test_every_file_that_a_page_names_exists():
    missing = []
    for page in WRITTEN:
        # Links are relative to their page; ARCHITECTURE.md writes relay/ for handlers/relay/.
        folders = (ROOT, page.parent, ROOT / "handlers", ROOT / "adapters", ROOT / "store")
        missing += [
            f"{page.relative_to(ROOT)}: {name}"
            for name in A_FILE.findall(page.read_text())
            if not any((folder / name).exists() for folder in folders)
        ]
    assert missing == []


def test_decisions_are_short_and_those_that_pages_cite_exist():
    numbers = set()
    for path in sorted((ROOT / "docs/adr").iterdir()):
        assert len(path.read_text().splitlines()) < 60, path.name
        numbers.add(path.name[:4])
    for page in WRITTEN:
        for cited in re.findall(r"ADR (\d{4})", page.read_text()):
            assert cited in numbers, f"{page.name}: ADR {cited}"


def test_nginx_takes_the_sample(tmp_path):
    """In a folder where nginx can load it without special rights or certificates."""
    nginx = program("nginx")
    sample = (ROOT / "conf/nginx.conf").read_text()
    sample = sample.replace("443", "8443").replace("/var/log/nginx/", "")
    command = (
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
        *("-subj", "/CN=gateway.example", "-keyout", "gateway.example.key"),
        *("-out", "gateway.example.pem"),
    )
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    (tmp_path / "sluice.conf").write_text(sample)
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = "".join(f"{kind}_temp_path {kind};\n" for kind in kinds)
    (tmp_path / "nginx.conf").write_text(
        "pid nginx.pid;\nerror_log stderr;\nevents {}\n"
        f"http {{\n{paths}include sluice.conf;\n}}\n"
    )
    command = [nginx, "-p", str(tmp_path), "-c", "nginx.conf", "-t"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0 and "warn" not in done.stderr, done.stderr
