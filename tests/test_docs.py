"""What is made from the code is up to date; what is written by hand can be loaded."""

import shutil
import subprocess
from pathlib import Path

import pytest

from commands import docs, explain
from conf.settings import SETTINGS
from handlers.relay import health, plan

ROOT = Path(__file__).resolve().parents[1]


MADE = ["docs/settings.md", "docs/cli.md", "docs/errors.md", "conf/gateway.toml"]


@pytest.mark.parametrize("name", MADE)
def test_made_files_are_up_to_date(name):
    assert (ROOT / name).read_text() == docs.pages()[name], f"{name} is old: run make docs"


def test_every_setting_is_documented():
    settings = (ROOT / "docs/settings.md").read_text()
    sample = (ROOT / "conf/gateway.toml").read_text()
    for row in SETTINGS.values():
        assert f"`{row.name}`" in settings
        assert f"\n#{row.key} = " in sample


def test_the_page_of_channels_says_the_numbers_that_hold():
    page = " ".join((ROOT / "docs/channels.md").read_text().split())
    often = f"or {health.RATE} of the last {health.WINDOW}"
    for words in (
        f"{health.ROW} faults in a row, {often} calls",
        f"{health.ROW} slow starts in a row, {often}",
        f"{health.COOL_S:.0f} s, doubled each time up to {health.COOL_MAX_S:.0f} s",
        f"{health.KEY_COOL_S:.0f} s, doubled each time up to {health.KEY_COOL_MAX_S:.0f} s",
        f"as the vendor says, at most {health.MAX_RETRY_AFTER_S} s",
        f"takes {health.SLOW_TIMES:.0f} times as long as usual",
        f"and more than {health.SLOW_S:.0f} s",
        f"up to {health.JITTER:.0%} shorter".replace("%", " %"),
        f"makes room for another after {health.PROBE_S:.0f} s",
        f"After {health.FORGET_S:.0f} s without trouble",
    ):
        assert words in page, words
    for reason in (plan.DISABLED, plan.OTHER_GROUP, plan.OTHER_FAMILY, explain.NO_COUNTING):
        assert f"`{reason}`" in page


@pytest.fixture
def nginx(tmp_path):
    """The sample in a folder where nginx can load it without rights and certificates of its own."""
    program = shutil.which("nginx", path="/usr/sbin:/usr/local/sbin:/usr/bin:/usr/local/bin")
    if program is None or shutil.which("openssl") is None:
        pytest.skip("nginx or openssl is not installed")
    sample = (ROOT / "conf/nginx.conf").read_text()
    sample = sample.replace("443", "8443").replace("/var/log/nginx/", "")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=gateway.example", "-keyout", "gateway.example.key"),
            *("-out", "gateway.example.pem"),
        ],
        cwd=tmp_path,
        check=True,
        capture_output=True,
    )
    (tmp_path / "sluice.conf").write_text(sample)
    (tmp_path / "nginx.conf").write_text(
        "pid nginx.pid;\nerror_log stderr;\nevents {}\nhttp {\n"
        + "".join(
            f"{kind}_temp_path {kind};\n"
            for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + "include sluice.conf;\n}\n"
    )
    return [program, "-p", str(tmp_path), "-c", "nginx.conf"]


def test_nginx_takes_the_sample(nginx):
    got = subprocess.run([*nginx, "-t"], check=False, capture_output=True, text=True)
    assert got.returncode == 0, got.stderr
    assert "warn" not in got.stderr
