"""The tests' vendor as a program: `python -m tests.vendor --port=0`."""

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from tests.vendor import perform
from tests.vendor.log import RequestLog
from tests.vendor.server import VendorServer, raise_descriptor_limit

HOST = "127.0.0.1"
GAP_MS = 2  # what a person sees as a stream takes tests too long


def main() -> None:
    parser = argparse.ArgumentParser(prog="tests.vendor")
    parser.add_argument("--port", type=int, required=True, help="0: a free one")
    parser.add_argument("--samples", type=Path, help="directory of sample files")
    parser.add_argument("--log", type=Path, help="file that gets a line for each request")
    parser.add_argument("--paced", action="store_true", help="stream as an operator's demo does")
    options = parser.parse_args()
    if not options.paced:
        perform.STREAM_GAP_MS = GAP_MS
    raise_descriptor_limit()
    server = VendorServer(RequestLog(options.log), options.samples)
    asyncio.run(serve(server, options.port))


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
