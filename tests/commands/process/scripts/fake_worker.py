"""A worker for the tests of the supervisor: serves its pid, reports, obeys; `mode` sets its
faults.

Modes: good; dies (right after its start); refuses (exit 3); deaf (obeys nothing); slow-drain (a
call of 1.5 s runs); notes (first writes the start line to the file argv[2]); no-reports; late
(takes 3 s to start).
"""

import json
import os
import selectors
import signal
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[4]))

from commands.process.worker_state import StateWriter

REPORT_S = 0.2
LATE_S = 3.0


def main() -> int:
    mode = sys.argv[1]
    start = json.loads(sys.stdin.readline())
    if mode == "dies":
        return 7
    if mode == "refuses":
        return 3
    if mode == "late":
        time.sleep(LATE_S)
    if mode == "notes":
        with open(sys.argv[2], "w") as file:
            masked = signal.pthread_sigmask(signal.SIG_BLOCK, [])
            descriptors = sorted(map(int, os.listdir("/proc/self/fd")))
            json.dump({**start, "masked": [*map(int, masked)], "descriptors": descriptors}, file)
    return serve(mode, start)


def serve(mode: str, start: dict) -> int:
    listener = socket.socket(fileno=start["listen_fd"])
    os.set_blocking(0, False)
    selector = selectors.DefaultSelector()
    selector.register(listener, selectors.EVENT_READ)
    selector.register(0, selectors.EVENT_READ)
    draining_until = None
    state = StateWriter(start["state_fd"])
    next_report = 0.0
    while draining_until is None or time.monotonic() < draining_until:
        if time.monotonic() >= next_report and mode != "no-reports":
            next_report = time.monotonic() + REPORT_S
            state.beat()
            state.write({"ready": True, "why": "", "streams": 2, "calls": 3, "draining": False})
        for key, _ in selector.select(0.05):
            if key.fd == 0:
                said = os.read(0, 4096)
                if mode == "deaf":
                    if not said:
                        selector.unregister(0)
                    continue
                if b"stop" in said:
                    return 0
                if b"log" in said:  # "log-level", "reopen-log"
                    continue
                if draining_until is None:  # "drain", or the end of the supervisor
                    draining_until = time.monotonic() + (1.5 if mode == "slow-drain" else 0.1)
                    selector.unregister(listener)
                    listener.close()
                if not said:
                    selector.unregister(0)
            else:
                answer(listener)
    return 0


def answer(listener: socket.socket) -> None:
    try:
        peer, _ = listener.accept()
    except OSError:
        return
    with peer:
        peer.settimeout(2)
        peer.recv(1000)
        peer.sendall(b"HTTP/1.0 200 OK\r\n\r\n" + str(os.getpid()).encode())


if __name__ == "__main__":
    sys.exit(main())
