"""`demo`: the demo vendor, which runs until it is stopped.

Started by quickstart, and by users who try the vendor "Demo" of the Hub's first run.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from pathlib import Path

import click

from demo.server import start

STDIN_READ_BYTES = 4096


@click.command("demo")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(0, 65535), required=True, help="Port; 0: any free one.")
@click.option(
    "--watch-stdin", is_flag=True, help="Exit when stdin ends, and so with the parent process."
)
@click.option(
    "--log",
    "log_path",
    type=click.Path(dir_okay=False, path_type=Path),
    help="File to log requests to, one line each.",
)
def command(host: str, port: int, watch_stdin: bool, log_path: Path | None) -> None:
    """Run the demo upstream: it speaks all four families and answers with made-up text.

    Prints its URL, the base_url of a channel of the vendor `demo`.
    """
    asyncio.run(_serve(host, port, watch_stdin, log_path))


async def _serve(host: str, port: int, watch_stdin: bool, log_path: Path | None) -> None:
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    try:
        server, bound = start(host, port, log_path)
    except OSError as error:
        raise click.ClickException(f"cannot listen on {host}:{port}: {error.strerror}") from error
    if watch_stdin:
        thread = threading.Thread(target=_watch_stdin, args=(loop, stopped), daemon=True)
        thread.start()
    click.echo(f"http://{host}:{bound}")
    await stopped.wait()
    server.stop()


def _watch_stdin(loop: asyncio.AbstractEventLoop, stopped: asyncio.Event) -> None:
    # A thread with plain reads, because an event loop cannot watch a stdin that is a file.
    while os.read(0, STDIN_READ_BYTES):
        pass
    loop.call_soon_threadsafe(stopped.set)


if __name__ == "__main__":
    command()
