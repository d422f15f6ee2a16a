"""nginx in front of a gateway."""

import os
import re
import socket
import subprocess
import time
from pathlib import Path

from tests.support import leash
from tests.support.gateway import HOST, ROOT, Gateway
from tests.support.programs import program

START_S = 10
MAIN = """{user}
pid nginx.pid;
daemon off;
worker_processes 1;
error_log error.log;
events {{ worker_connections 4096; }}
http {{
client_body_temp_path body; proxy_temp_path proxy; fastcgi_temp_path fastcgi;
uwsgi_temp_path uwsgi; scgi_temp_path scgi;
access_log off;
{http}
}}
"""


class Nginx:
    """An nginx in the foreground with `http` as the content of its http block."""

    def __init__(self, folder: Path, port: int, http: str) -> None:
        self.folder, self.port = folder, port
        user = "user root;" if os.geteuid() == 0 else ""
        (folder / "nginx.conf").write_text(MAIN.format(user=user, http=http))
        argv = [program("nginx"), "-p", str(folder), "-e", "error.log", "-c", "nginx.conf"]
        self.process = leash.Popen(argv)
        deadline = time.monotonic() + START_S
        while True:
            with socket.socket() as probe:
                if probe.connect_ex((HOST, port)) == 0:
                    return
            assert self.process.poll() is None, self.errors()
            assert time.monotonic() < deadline, self.errors()
            time.sleep(0.02)

    def errors(self) -> str:
        path = self.folder / "error.log"
        return path.read_text() if path.exists() else ""

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(START_S)


def product_configuration(
    folder: Path, port: int, nodes: list[Gateway], upstreams: str | None = None
) -> str:
    """Return conf/nginx.conf with the tests' ports; all settings that affect its behaviour stay.
    `upstreams` replaces its own upstreams."""
    subprocess.run(
        [
            *(program("openssl"), "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "1"),
            *("-subj", "/CN=gateway.example", "-keyout", "gateway.example.key"),
            *("-out", "gateway.example.pem"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    replaced = {
        r"listen 443 ": f"listen {HOST}:{port} ",
        r"listen \[::\]:443 .*;": "",
        r"/var/log/nginx/": "",
    }
    if upstreams is None:
        replaced[r"127\.0\.0\.1:8000"] = f"{HOST}:{nodes[0].port}"
        replaced[r"127\.0\.0\.1:8010"] = f"{HOST}:{nodes[1].port}"
    else:
        replaced[r"(?s)upstream sluice_relay \{.*?\n\}"] = upstreams
        replaced[r"127\.0\.0\.1:8001"] = "sluice_hub"
    return sample("conf/nginx.conf", replaced)


def sample(name: str, replaced: dict[str, str]) -> str:
    """Return a sample file of the product with replacements for these patterns, each of which it
    must contain."""
    text = (ROOT / name).read_text()
    for pattern, replacement in replaced.items():
        text, count = re.subn(pattern, lambda _, new=replacement: new, text)
        assert count, f"{name} has no {pattern} any more"
    return text
