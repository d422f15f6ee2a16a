"""The lock and the name of a journal folder, and the sockets of one gateway."""

import os
import socket

import pytest

from commands.process import listeners, node
from commands.process.node import StartError
from store.calls.source import PARKED_FILE


def test_one_holder_at_a_time(tmp_path):
    folder = tmp_path / "deep" / "journal"
    lock = node.claim(folder)
    with pytest.raises(StartError, match=rf"journal.dir {folder} .*process {os.getpid()}"):
        node.claim(folder)
    os.close(lock)
    os.close(node.claim(folder))
    assert folder.stat().st_mode & 0o777 == 0o700


def test_the_name_stays(tmp_path):
    name = node.name_of(tmp_path)
    assert name and name.isprintable() and " " not in name
    assert node.name_of(tmp_path) == name
    (tmp_path / "node").write_text("given-by-me\n")
    assert node.name_of(tmp_path) == "given-by-me"


def test_what_the_writer_has_put_aside_is_counted(tmp_path):
    assert node.PARKED_NAME == PARKED_FILE
    assert node.parked_in(tmp_path) == 0
    (tmp_path / PARKED_FILE).write_text('{"reason":"a"}\n{"reason":"b"}\n')
    assert node.parked_in(tmp_path) == 2


def test_a_folder_that_cannot_be_used(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StartError, match=r"journal\.dir"):
        node.claim(tmp_path / "file")


@pytest.fixture
def port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


@pytest.fixture
def bind():
    made = []

    def run(*args):
        made.extend(listeners.bind(*args))
        return made

    yield run
    listeners.close_all(made)


def test_a_second_gateway_is_refused(bind, port):
    bind("server", "127.0.0.1", port, 3)
    for slots in (1, 3):
        with pytest.raises(StartError, match=f"server.port {port} on 127.0.0.1 is in use"):
            listeners.bind("server", "127.0.0.1", port, slots)


def test_the_port_is_free_again_after_close(bind, port):
    client = None
    for one in bind("server", "127.0.0.1", port, 2):
        client = client or socket.create_connection(("127.0.0.1", port))
        try:
            one.accept()[0].close()  # this side closes first, which leaves TIME_WAIT
        except BlockingIOError:
            pass
    listeners.close_all(bind("ops", "127.0.0.1", 0))
    client.close()
    assert bind("server", "127.0.0.1", port, 2)


@pytest.mark.parametrize("host", ["no.such.host.invalid", "203.0.113.1", "a" * 64 + ".example"])
def test_hosts_that_are_not_ours(host, port):
    with pytest.raises(StartError, match=f"server.host {host}"):
        listeners.bind("server", host, port)


def test_ipv6(bind, port):
    if not socket.has_ipv6:
        pytest.skip("no IPv6")
    try:
        bind("server", "::1", port, 2)
    except StartError as error:
        pytest.skip(str(error))
    socket.create_connection(("::1", port)).close()
