"""The unit, and the commands that install it: paths, user and rights match."""

import configparser
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.packages import PACKAGES
from tests.support.ports import free_port
from tests.support.programs import program

ROOT = Path(__file__).resolve().parents[1]
UNIT = ROOT / "conf/systemd/sluice.service"
TEMPLATE = ROOT / "conf/systemd/sluice@.service"
CODE, STATE, USER = "/opt/sluice", "/var/lib/sluice", "sluice"


# Overlays for what is written to these folders; they vanish with the mount namespace.
FRESH = """
umask 022
mount --make-rprivate /
mount -t tmpfs fresh {tmp}
for folder in etc opt var/lib; do
  upper={tmp}/$folder/new work={tmp}/$folder/work
  mkdir -p $upper $work
  mount -t overlay fresh -o lowerdir=/$folder,upperdir=$upper,workdir=$work /$folder
done
export PATH=/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
{lines}
cd /root
{serve} &
for _ in $(seq 100); do
  {status} | grep '^ready  *yes' && break
  sleep 0.1
done
kill %1
wait
runuser -u {user} -- test -w {state} -a ! -w {code}
"""


def execute(*command, **options):
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture
def unit():
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str
    parser.read(UNIT)
    return parser["Service"]


@pytest.fixture
def install():
    """Return the lines of the how-to's first block."""
    page = (ROOT / "docs/operations.md").read_text()
    section = page.partition("## Install as a service")[2].partition("\n\n    ")[2]
    return [line.strip() for line in section.partition("\n\n")[0].splitlines()]


def test_the_unit_runs_what_is_installed(unit, install):
    assert unit["ExecStart"] == (
        f"{CODE}/.venv/bin/python {CODE}/app.py serve --config {STATE}/gateway.toml"
    )
    assert (unit["User"], unit["Group"], unit["WorkingDirectory"]) == (USER, USER, STATE)
    assert f"/var/lib/{unit['StateDirectory']}" == STATE
    assert {
        f"useradd --system --home-dir {STATE} --shell /usr/sbin/nologin {USER}",
        f"install -d -m {unit['StateDirectoryMode']} -o {USER} -g {USER} {STATE}",
        f"new={CODE}-$(date +%Y%m%d-%H%M%S)",
        "make -C $new venv",
        f"ln -s $new {CODE}",
        f"runuser -u {USER} -- {CODE}/sluice init {STATE}",
        f"cp {CODE}/conf/systemd/sluice.service /etc/systemd/system/",
    } <= set(install)


def test_the_unit_says_what_is_true_of_drains_watchdog_and_env(unit):
    settings = (ROOT / "conf/gateway.toml").read_text()
    drain_s = int(re.search(r"^#drain_timeout_s = (\d+)$", settings, re.M)[1])
    assert int(unit["TimeoutStopSec"]) > drain_s + 20 and int(unit["WatchdogSec"]) >= 10
    expected = {"RestartPreventExitStatus": "3", "KillMode": "mixed"}
    # Otherwise an unreachable store would end the start.
    expected |= {"Type": "notify", "NotifyAccess": "main", "TimeoutStartSec": "infinity"}
    assert {name: unit[name] for name in expected} == expected
    text = UNIT.read_text()
    assert "read by `./sluice apply`" in text and "never reads it" in text


def test_all_that_the_service_needs_is_copied(install, tmp_path):
    [line] = [line for line in install if line.startswith("cp -r")]
    assert {*PACKAGES, "app.py", "sluice", "Makefile"} <= set(line.split())
    there = line.replace("$new", str(tmp_path))
    execute("sh", "-ec", there, cwd=ROOT)
    environ = {"PATH": os.environ["PATH"]}
    execute(sys.executable, tmp_path / "app.py", "init", tmp_path / "state", env=environ)
    made = execute("make", "-n", "-C", tmp_path, "venv")
    assert not made.stderr, "the Makefile reads files of a checkout only"


@pytest.mark.parametrize(
    "unit_file",
    [UNIT, TEMPLATE, *sorted(UNIT.parent.glob("sluice-*"))],
    ids=lambda path: path.name,
)
def test_systemd_takes_it(tmp_path, unit_file):
    verify = program("systemd-analyze", package="systemd")
    path = tmp_path / unit_file.name.replace("@.", "@8010.")
    text = unit_file.read_text().replace(f"{CODE}/.venv/bin/python", sys.executable)
    path.write_text(text.replace(f"{CODE}/sluice", str(ROOT / "sluice")))
    done = subprocess.run([verify, "verify", path], check=False, capture_output=True, text=True)
    ours = [line for line in done.stderr.splitlines() if "sluice" in line]
    assert not ours, done.stderr


def test_the_template_is_the_unit_but_for_the_node():
    """It differs only in what a separate node needs."""

    def settings(path):
        text = path.read_text().partition("[Unit]")[2]
        return [line for line in text.splitlines() if not line.startswith("#")]

    alone, many = settings(UNIT), settings(TEMPLATE)
    more = {line for line in many if line not in alone}
    assert [line for line in alone if line not in many] == [
        line for line in alone if line.startswith(("Description=", "ExecStart="))
    ]
    assert {line.partition("=")[0] for line in more} == {
        *("Description", "ExecStart", "EnvironmentFile")
    }
    (start,) = [line for line in more if line.startswith("ExecStart=")]
    assert start.endswith(" --set server.port=%i --set journal.dir=journal-%i")


def run_as_unit(name, folder):
    """Run the commands of a unit of type oneshot, below a folder."""
    text = (UNIT.parent / f"sluice-{name}.service").read_text()
    for line in re.findall("^ExecStart(?:Pre|Post)?=[+]?(.*)$", text, re.M):
        line = line.replace("$$", "$").replace("%%", "%").replace(" -o sluice -g sluice", "")
        line = line.replace(f"{CODE}/sluice", str(ROOT / "sluice"))
        for place in (STATE, "/var/backups/sluice"):
            line = line.replace(place, str(folder / place.strip("/")))
        execute(*shlex.split(line), cwd=folder / STATE[1:])


def test_the_nightly_units_do_their_work(tmp_path):
    execute(ROOT / "sluice", "init", tmp_path / STATE[1:])
    backups = tmp_path / "var/backups/sluice"
    backups.mkdir(parents=True)
    for day in range(10, 22):
        (backups / f"2020-01-{day}.tar").touch()
        os.utime(backups / f"2020-01-{day}.tar", (day, day))
    run_as_unit("backup", tmp_path)
    names = sorted(path.name for path in backups.iterdir())
    assert len(names) == 10 and names[0] == "2020-01-13.tar"
    assert (backups / names[-1]).stat().st_size > 0
    run_as_unit("verify", tmp_path)
    run_as_unit("prune", tmp_path)


@pytest.mark.long
def test_it_installs_as_it_is_pasted(unit, install, tmp_path):
    """On the system's own Python, everything except apt-get and systemctl; packages come from
    their index."""
    if os.geteuid() != 0 or not os.path.exists("/usr/bin/python3") or not shutil.which("unshare"):
        pytest.skip("needs root, unshare and the Python of a Debian")
    lines = [line for line in install if not line.startswith(("apt-get", "systemctl"))]
    settings = {"SERVER": free_port(), "OPS": free_port()}
    ports = " ".join(f"SLUICE_{name}__PORT={port}" for name, port in settings.items())
    as_user = f"runuser -u {USER} -- env {ports}"
    script = FRESH.format(
        **{"tmp": tmp_path, "lines": "\n".join(lines), "user": USER, "code": CODE, "state": STATE},
        serve=f"{as_user} {unit['ExecStart']}",
        status=f"{as_user} {CODE}/sluice status --config {STATE}/gateway.toml",
    )
    done = execute("unshare", "-m", "bash", "-e", cwd=ROOT, input=script, timeout=600)
    assert re.search(r"^ready  *yes$", done.stdout, re.M), done.stdout + done.stderr
