"""The tests' vendor as a program: `python -m tests.vendor --port=0`.

With `--fork=FD` it starts a vendor for each message on a socket, so that the SDKs whose types it
uses are imported only once. A message has the arguments as JSON, with stdin and stdout as
descriptors.
"""

import argparse
import asyncio
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Sequence
from pathlib import Path

from tests.vendor.log import RequestLog
from tests.vendor.server import VendorServer, raise_descriptor_limit

HOST = "127.0.0.1"
MESSAGE_BYTES_MAX = 65_536


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="tests.vendor")
    start = parser.add_mutually_exclusive_group(required=True)
    start.add_argument("--fork", type=int, help="socket to start vendors by")
    start.add_argument("--port", type=int, help="0: a free one")
    parser.add_argument("--samples", type=Path, help="directory of sample files")
    parser.add_argument("--log", type=Path, help="file that gets a line for each request")
    options = parser.parse_args(arguments)
    if options.fork is not None:
        fork_vendors(socket.socket(fileno=options.fork))
        return
    raise_descriptor_limit()
    server = VendorServer(RequestLog(options.log), options.samples)
    asyncio.run(serve(server, options.port))


def fork_vendors(channel: socket.socket) -> None:
    """Start vendors, answering each message with the new process id, until the other end is
    closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them here
    while True:
        data, descriptors, _, _ = socket.recv_fds(channel, MESSAGE_BYTES_MAX, 2)
        if not data:
            return
        pid = os.fork()
        if pid == 0:
            channel.close()
            for number, descriptor in enumerate(descriptors):
                os.dup2(descriptor, number)
        for descriptor in descriptors:
            os.close(descriptor)
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            main(json.loads(data))
            return
        channel.send(b"%d" % pid)


async def serve(server: VendorServer, port: int) -> None:
    """Serve until stdin ends or a signal comes."""
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        bound = await server.start(HOST, port)
    except OSError as error:
        sys.exit(f"cannot listen on {HOST}:{port}: {error.strerror}")
    threading.Thread(target=watch_stdin, args=(loop, stopped), daemon=True).start()
    sys.stdout.write(f"http://{HOST}:{bound}\n")
    sys.stdout.flush()
    await stopped.wait()
    await server.stop()


def watch_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    # A thread with plain reads: an event loop cannot watch a stdin that is a file.
    while os.read(0, 4096):
        pass
    loop.call_soon_threadsafe(stopped.set)


if __name__ == "__main__":
    main()
