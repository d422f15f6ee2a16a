"""Container files: what makes them safe and makes them drain, compared with the product."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from conf.configuration import load
from conf.settings import Settings
from store.copies import snapshot
from tests.support.packages import PACKAGES

ROOT = Path(__file__).resolve().parents[1]
DOCKERFILE = (ROOT / "conf/docker/Dockerfile").read_text()
COMPOSE = (ROOT / "conf/docker/compose.yml").read_text()
KUBERNETES = (ROOT / "conf/kubernetes/sluice.yaml").read_text()
DEFAULTS = Settings()
DRAIN_S = DEFAULTS.server.drain_timeout_s
PORTS = [DEFAULTS.server.port, DEFAULTS.hub.port, DEFAULTS.ops.port]
NOT_SHIPPED = {"tests", "tools"}


def instructions(text):
    """Return (name, rest) of each line of a Dockerfile, with continued lines joined."""
    joined = re.sub(r"\\\n\s*", " ", text)
    lines = [line for line in joined.splitlines() if line and not line.startswith("#")]
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines)]


def number(pattern, text):
    return int(re.search(pattern, text)[1])


def works(program, *args):
    """Return True if a program is installed and a command of it works."""
    if shutil.which(program) is None:
        return False
    return not subprocess.run([program, *args], check=False, capture_output=True).returncode


def printed(*command, **options):
    done = subprocess.run(command, check=False, capture_output=True, text=True, **options)
    assert done.returncode == 0, done.stderr
    return done.stdout


# ---- the image -----------------------------------------------------------------------------------


def test_the_image_runs_as_nobody_special():
    last = instructions(DOCKERFILE.rpartition("\nFROM ")[2])
    (user,) = [rest for name, rest in last if name == "USER"]
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user), "a number, which Kubernetes can check"
    assert [name for name, _ in last].index("USER") > max(
        place for place, (name, _) in enumerate(last) if name in ("RUN", "COPY")
    )
    assert "sudo" not in DOCKERFILE and ":latest" not in DOCKERFILE


def test_the_image_has_what_is_pinned_and_nothing_else():
    assert "--require-hashes -r requirements.txt" in DOCKERFILE
    copied = {rest.split()[-1] for name, rest in instructions(DOCKERFILE) if name == "COPY"}
    assert set(PACKAGES) - NOT_SHIPPED <= copied
    ignored = (ROOT / "conf/docker/Dockerfile.dockerignore").read_text().split("\n")
    kept = {line[1:] for line in ignored if line.startswith("!")}
    assert "*" in ignored and set(PACKAGES) - NOT_SHIPPED <= kept
    for path in kept:
        assert (ROOT / path).exists(), path


def test_the_image_has_the_programs_of_backup_and_restore():
    install = r"apt-get install -y --no-install-recommends ([\w. +-]+?) &&"
    (packages,) = re.findall(install, dict(instructions(DOCKERFILE))["RUN"])
    if shutil.which("mariadb-dump") is None or shutil.which("dpkg-query") is None:
        pytest.skip(f"needs a Debian that has {packages}")
    depends = printed("dpkg-query", "-W", "-f", "${Depends}, ", *packages.split())
    names = [name for name in re.findall(r"([\w.+-]+)[^,]*,", depends) if "perl" not in name]
    files = printed("dpkg-query", "-L", *packages.split(), *names).splitlines()
    for programs in (snapshot.DUMPERS, snapshot.CLIENTS):
        assert f"/usr/bin/{programs[0]}" in files
    # Debian 12, as on the tests' machine: later clients insist on TLS to the server.
    assert re.findall(r"^FROM python:\S+-(\w+)", DOCKERFILE, re.M) == ["bookworm"] * 2


def test_the_image_drains_and_is_looked_at():
    said = dict(instructions(DOCKERFILE))
    assert said["STOPSIGNAL"] == "SIGTERM" and json.loads(said["ENTRYPOINT"]) == ["sluice"]
    assert [int(port) for port in said["EXPOSE"].split()] == PORTS
    check = json.loads(said["HEALTHCHECK"].partition("CMD ")[2])
    assert check[0] == "python" and "/livez" in check[2]
    compile(check[2], "healthcheck", "exec")


# ---- compose -------------------------------------------------------------------------------------


def test_compose_confines_the_gateway_and_waits_for_database_schema_and_drain():
    assert number(r"stop_grace_period: (\d+)s", COMPOSE) > DRAIN_S + 20
    gateway = COMPOSE.partition("x-gateway:")[2].partition("x-environment:")[0]
    for line in ("read_only: true", 'cap_drop: ["ALL"]', "no-new-privileges:true"):
        assert line in gateway
    assert "condition: service_healthy" in COMPOSE and "healthcheck.sh" in COMPOSE
    assert re.findall(r'ports: \["(\S+)"\]', COMPOSE) == ["443:443"], "only nginx is reached"
    assert not re.findall(r"(?i)password: [a-z0-9]+$", COMPOSE, re.M), "a password in the file"
    services = dict(re.findall(r"^  ([\w-]+):.*\n((?:(?:    .*)?\n)+)", COMPOSE, re.M))
    assert "condition: service_healthy" in services["init"] and 'restart: "no"' in services["init"]
    for node in ("node-1", "node-2"):
        assert "init: { condition: service_completed_successfully }" in services[node]


def test_compose_fits_the_sample_of_nginx():
    nginx = (ROOT / "conf/nginx.conf").read_text()
    relays = [int(port) for port in re.findall(r"server 127\.0\.0\.1:(\d+) max_fails", nginx)]
    second = [
        number(rf'SLUICE_{name}__PORT: "(\d+)"', COMPOSE) for name in ("SERVER", "HUB", "OPS")
    ]
    assert relays == [DEFAULTS.server.port, second[0]]
    assert not set(second) & set(PORTS) and COMPOSE.count("network_mode: service:nginx") == 2
    assert "SLUICE_JOURNAL__DIR: journal-2" in COMPOSE


def test_the_init_step_of_compose_does_its_work_each_time(tmp_path, mariadb, monkeypatch):
    command = json.loads(re.search(r"entrypoint: (\[.*\])", COMPOSE)[1])
    monkeypatch.setenv("SLUICE_STORE__URL", mariadb.fresh_url())
    monkeypatch.setenv("SLUICE_CONFIG", str(tmp_path / "state/gateway.toml"))
    monkeypatch.setenv("PATH", str(ROOT), prepend=os.pathsep)
    command = [part.replace("/var/lib/sluice", str(tmp_path / "state")) for part in command]
    for expected in ("created", "exists already"):
        assert f"gateway.toml: {expected}" in printed(*command, "serve")
    printed("sluice", "books", "verify")


def test_docker_takes_the_compose_file(tmp_path):
    if not works("docker", "compose", "version"):
        pytest.skip("docker compose is not installed")
    command = ["docker", "compose", "-f", str(ROOT / "conf/docker/compose.yml"), "config"]
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "DB_PASSWORD": "x"}
    services = json.loads(printed(*command, "--format", "json", env=env))["services"]
    assert {"db", "init", "nginx", "node-1", "node-2"} <= services.keys()
    assert services["node-2"]["environment"]["SLUICE_STORE__URL"].startswith("mysql://sluice:x@db")


def test_the_image_builds():
    if not works("docker", "info"):
        pytest.skip("no container engine runs here")
    build = ["docker", "build", "-q", "-f", "conf/docker/Dockerfile", "."]
    image = printed(*build, cwd=ROOT).strip()
    assert printed("docker", "run", "--rm", "--read-only", image, "version").startswith("sluice ")


# ---- Kubernetes ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def deployment():
    """Return the document of the Deployment, after checks of all kinds."""
    texts = {}
    for text in re.split(r"^---$", KUBERNETES, flags=re.M):
        assert re.search(r"^apiVersion: \S+$", text, re.M) and "\t" not in text
        texts[re.search(r"^kind: (\w+)$", text, re.M)[1]] = text
    assert {"ConfigMap", "Secret", "Deployment", "Service", "PodDisruptionBudget"} == texts.keys()
    return texts["Deployment"]


def test_a_pod_has_the_time_to_drain_and_is_asked_at_the_ops_port(deployment):
    pause_s = number(r'preStop:.*\n\s+exec: \{ command: \["sleep", "(\d+)"\]', deployment)
    drain_s = number(r"drain_timeout_s = (\d+)", KUBERNETES)
    assert number(r"terminationGracePeriodSeconds: (\d+)", deployment) >= pause_s + drain_s + 20
    assert "maxUnavailable: 0" in deployment
    probes = re.findall(r"(\w+)Probe:.*\n\s+httpGet: \{ path: (\S+), port: ops \}", deployment)
    assert dict(probes) == {"startup": "/livez", "readiness": "/readyz", "liveness": "/livez"}
    assert [int(port) for port in re.findall(r"containerPort: (\d+)", deployment)] == PORTS


def test_a_pod_has_no_rights(deployment):
    user = number(r"^USER (\d+):", DOCKERFILE[DOCKERFILE.index("\nUSER") + 1 :])
    for line in (f"runAsUser: {user}", f"fsGroup: {user}", "runAsNonRoot: true",
                 "readOnlyRootFilesystem: true", 'drop: ["ALL"]',
                 "automountServiceAccountToken: false"):  # fmt: skip
        assert line in deployment


def test_its_configuration_is_one(tmp_path):
    block = KUBERNETES.partition("gateway.toml: |\n")[2].partition("---")[0]
    path = tmp_path / "gateway.toml"
    path.write_text(re.sub(r"^    ", "", block, flags=re.M))
    environ = {"SLUICE_OPS__TOKEN": "x", "SLUICE_STORE__URL": "mysql://sluice:p@mariadb:3306/s"}
    settings = load(path, (), environ).settings
    assert settings.server.host == settings.ops.host == "0.0.0.0"
    assert settings.journal.dir == "/var/lib/sluice/journal"
