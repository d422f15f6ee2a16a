"""The vendor as a process: what it logs, whom it sees leave, how many it bears, how it ends."""

import json
import select
import signal
import socket
import subprocess
import sys
import time

import pytest

from tests.support.upstream import ROOT, ScriptedUpstream


@pytest.fixture(scope="module")
def upstream():
    with ScriptedUpstream() as running:
        yield running


def request_bytes(words, path="/v1/chat/completions", stream=True, close=False):
    body = {
        "model": "demo-large",
        "stream": stream,
        "messages": [{"role": "user", "content": f"[[demo {words}]] hi"}],
    }
    data = json.dumps(body).encode()
    return (
        f"POST {path} HTTP/1.1\r\nhost: x\r\nauthorization: Bearer sk-up\r\n"
        f"connection: {'close' if close else 'keep-alive'}\r\n"
        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n"
    ).encode() + data


def connect(upstream):
    return socket.create_connection(("127.0.0.1", upstream.port), timeout=10)


def wait_for(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "nothing happened in time"
        time.sleep(0.02)
    return found


def read_all(sock):
    received = b""
    while part := sock.recv(1 << 16):
        received += part
    return received


def test_the_log_says_what_arrived_and_how_it_ended(upstream):
    upstream.reset()
    with connect(upstream) as sock:
        sock.sendall(request_bytes("chunks=2 ms=0", close=True))
        read_all(sock)
    [entry] = upstream.log()
    assert (entry["n"], entry["family"], entry["model"]) == (1, "chat_completions", "demo-large")
    assert (entry["method"], entry["path"]) == ("POST", "/v1/chat/completions")
    assert (entry["stream"], entry["status"], entry["finished"]) == (True, 200, True)
    assert (entry["chunks_sent"], entry["gone_at_ms"], entry["fault"]) == (5, None, None)
    assert entry["headers"]["authorization"] == "Bearer sk-up"
    assert "chunks=2" in entry["body"]
    assert abs(entry["at_ms"] - time.time() * 1000) < 10_000


def test_refused_requests_and_other_paths_are_logged(upstream):
    upstream.reset()
    for words, path in (("explode", "/v1/chat/completions"), ("", "/__redirected?x=1")):
        with connect(upstream) as sock:
            sock.sendall(request_bytes(words, path, close=True))
            read_all(sock)
    assert [(entry["status"], entry["family"], entry["path"]) for entry in upstream.log()] == [
        (400, "chat_completions", "/v1/chat/completions"),
        (404, None, "/__redirected?x=1"),
    ]


@pytest.mark.parametrize(
    "words",
    [
        "ms=60000",
        "first_ms=60000",
        "stall_before_head",
        "stall_after_head",
        "stall=2 ms=0",
        "flood=4096",
    ],
)
@pytest.mark.parametrize("by_reset", [False, True])
def test_a_client_that_leaves_is_noticed_at_once(upstream, words, by_reset):
    upstream.reset()
    sock = connect(upstream)
    sock.sendall(request_bytes(words))
    wait_for(upstream.log)
    time.sleep(0.1)
    assert upstream.log()[0]["gone_at_ms"] is None
    if by_reset:
        linger = b"\x01\0\0\0\0\0\0\0"
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
    left_ms = time.time() * 1000
    sock.close()
    gone_ms = wait_for(lambda: upstream.log()[0]["gone_at_ms"])
    assert -5 <= gone_ms - left_ms < 50
    assert upstream.log()[0]["finished"] is False
    wait_for(lambda: upstream.stats()["streams"] == 0)


def test_a_client_that_only_ends_its_sending_half_is_gone_even_when_it_reads_nothing(upstream):
    upstream.reset()
    with connect(upstream) as sock:
        sock.sendall(request_bytes("flood=4096"))
        wait_for(upstream.log)
        time.sleep(0.3)
        left_ms = time.time() * 1000
        sock.shutdown(socket.SHUT_WR)
        gone_ms = wait_for(lambda: upstream.log()[0]["gone_at_ms"])
    assert -5 <= gone_ms - left_ms < 50


def test_a_client_that_does_not_read_makes_a_flood_wait(upstream):
    upstream.reset()
    with connect(upstream) as sock:
        sock.sendall(request_bytes("flood=200"))
        wait_for(upstream.log)
        time.sleep(0.5)
        sent = upstream.log()[0]["chunks_sent"]
        time.sleep(0.3)
        assert upstream.log()[0]["chunks_sent"] == sent
        assert sent * 4096 < 32 * 1024 * 1024


def test_a_thousand_stalled_connections_beside_two_hundred_streams(upstream):
    upstream.reset()
    stalled = [connect(upstream) for _ in range(1000)]
    for sock in stalled:
        sock.sendall(request_bytes("stall_after_head"))
    wait_for(lambda: upstream.stats()["streams"] >= 1000)
    started = time.monotonic()
    streams = [connect(upstream) for _ in range(200)]
    for sock in streams:
        sock.sendall(request_bytes("chunks=20 ms=20", close=True))
    poll = select.poll()
    received = {sock.fileno(): b"" for sock in streams}
    by_number = {sock.fileno(): sock for sock in streams}
    for sock in streams:
        poll.register(sock, select.POLLIN)
    while by_number:
        for number, _ in poll.poll(5000):
            part = by_number[number].recv(1 << 16)
            received[number] += part
            if not part:
                poll.unregister(number)
                by_number.pop(number).close()
    assert all(data.endswith(b"\r\n0\r\n\r\n") for data in received.values())
    assert time.monotonic() - started < 5
    for sock in stalled:
        sock.close()
    wait_for(lambda: upstream.stats()["connections"] == 0)


def test_reset_and_stats(upstream):
    upstream.reset()
    assert upstream.log() == []
    before = upstream.stats()
    with connect(upstream) as sock:
        sock.sendall(request_bytes("stall_after_head"))
        wait_for(lambda: upstream.stats()["streams"] == 1)
        assert upstream.stats()["connections"] == 1
    wait_for(lambda: upstream.stats()["connections"] == 0)
    assert upstream.stats()["accepted"] > before["accepted"]
    assert [entry["n"] for entry in upstream.log()] == [1]


def test_the_log_file_is_true_before_the_answer(tmp_path):
    path = tmp_path / "log.ndjson"
    with ScriptedUpstream(log_file=path) as upstream, connect(upstream) as sock:
        sock.sendall(request_bytes("stall_before_head"))
        wait_for(lambda: path.read_text().endswith("\n"))
        upstream.process.kill()
        [line] = path.read_text().splitlines()
        assert json.loads(line)["model"] == "demo-large"


def test_samples_are_served_from_the_directory(tmp_path):
    (tmp_path / "chat_completions").mkdir()
    sample = b'data: {"odd" : "spacing"}\n\ndata: [DONE]\n\n'
    (tmp_path / "chat_completions" / "text.sse").write_bytes(sample)
    with ScriptedUpstream(samples=tmp_path) as upstream, connect(upstream) as sock:
        sock.sendall(request_bytes("sample=text batch=9", close=True))
        answer = read_all(sock).partition(b"\r\n\r\n")[2]
    assert answer == b"%x\r\n%s\r\n0\r\n\r\n" % (len(sample), sample)


@pytest.mark.parametrize("how", ["stdin", "sigterm", "sigint"])
def test_it_ends_with_its_parent_or_by_a_signal(how):
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.vendor", "--port=0"],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        port = int(process.stdout.readline().rpartition(":")[2])
        with (
            socket.create_connection(("127.0.0.1", port)) as idle,
            socket.create_connection(("127.0.0.1", port)) as stalled,
        ):
            stalled.sendall(request_bytes("stall_after_head"))
            stalled.recv(10)
            if how == "stdin":
                process.stdin.close()
            else:
                process.send_signal(signal.SIGTERM if how == "sigterm" else signal.SIGINT)
            assert process.wait(5) == 0
            idle.settimeout(1)
        assert process.stderr.read() == ""
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout, process.stderr):
            pipe.close()


def test_a_port_that_is_taken_is_an_error_at_once(upstream):
    with pytest.raises(RuntimeError):
        ScriptedUpstream(port=upstream.port)
