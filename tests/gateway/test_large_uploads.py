"""Uploads that are refused for their size, by real clients: each sees 413, none a reset."""

import http.client
import shutil
import socket
import subprocess

import pytest

from tests.support.client import encode_head
from tests.support.dialects import ALL, CHAT, credentials, path_of
from tests.support.documents import channel, document

LIMIT_BYTES = 1 << 20
MODEL = "any-model"
TIMEOUT_S = 30
PIECE_BYTES = 1 << 20


@pytest.fixture(scope="module")
def gateway(launch, vendor):
    channels = [channel(family, family, vendor.url, {MODEL: MODEL}) for family in ALL]
    return launch(document([MODEL], channels), {"server.max_body_bytes": LIMIT_BYTES})


@pytest.fixture(scope="module", params=[12_000_000, 200_000_000], ids=["12 MB", "200 MB"])
def upload(request, tmp_path_factory):
    """A file of so many bytes."""
    path = tmp_path_factory.mktemp("upload") / "body.json"
    with path.open("wb") as file:
        file.truncate(request.param)
    return path


@pytest.mark.parametrize("family", ALL)
def test_curl_shows_the_answer(gateway, upload, family):
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    headers = {"Content-Type": "application/json", "Expect": "", **credentials(family)}
    argv = ["curl", "--silent", "--show-error", "--max-time", str(TIMEOUT_S)]
    argv += [part for name, value in headers.items() for part in ("-H", f"{name}: {value}")]
    argv += ["--write-out", "\n%{http_code}", "--data-binary", f"@{upload}"]
    argv.append(f"http://127.0.0.1:{gateway.port}{path_of(family, MODEL)}")
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    body, _, status = done.stdout.rpartition("\n")
    assert (status, "larger than 1 MiB" in body) == ("413", True), done


@pytest.mark.parametrize("family", ALL)
def test_a_client_that_sends_all_of_it_before_it_reads(gateway, family):
    """As http.client of the standard library does, and what stands on it."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=TIMEOUT_S)
    headers = {"Content-Type": "application/json", **credentials(family)}
    connection.request("POST", path_of(family, MODEL), bytes(12_000_000), headers)
    answer = connection.getresponse()
    assert (answer.status, b"larger than 1 MiB" in answer.read()) == (413, True)
    connection.close()


def test_200_mb_of_a_client_that_does_not_read_are_not_listened_to(gateway):
    """What is behind 64 MiB is not taken; a client that has looked by then has its answer."""
    headers = {"Content-Type": "application/json", "Content-Length": "200000000"}
    head = encode_head("POST", path_of(CHAT, MODEL), {**headers, **credentials(CHAT)})
    sent = 0
    with socket.create_connection(("127.0.0.1", gateway.port), TIMEOUT_S) as peer:
        peer.sendall(head)
        with pytest.raises(ConnectionError):
            while sent < 200_000_000:
                peer.sendall(bytes(PIECE_BYTES))
                sent += PIECE_BYTES
    assert 60_000_000 < sent < 100_000_000
