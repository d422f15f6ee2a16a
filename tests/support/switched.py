"""Vendors that a test switches between answers and faults."""

import contextlib
import json
import re
import socket
import struct
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from tests.support.echo import ANSWER, CHUNK, ERROR, answer_of, events_of
from tests.support.upstream import read_request

LIST = {"object": "list", "data": [{"id": "up", "object": "model"}]}
HOST = "127.0.0.1"
KEY = re.compile(rb"(?i)\r\nauthorization: *bearer ([^\r]*)")
WRONG = {"error": {"message": "Incorrect API key provided", "code": "invalid_api_key"}}
HEAD_ONLY = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
)
# A bad upstream's reactions to a request: the bytes to send, and whether it then resets.
WAYS = {
    "dies": (b"", False),
    "resets": (b"", True),
    "dies in head": (b"HTTP/1.1 200 OK\r\nContent-Ty", False),
    "500": (answer_of(500, ERROR), False),
    "429": (answer_of(429, ERROR), False),
    "429 with retry-after": (answer_of(429, ERROR, retry_after=2), False),
    "401": (answer_of(401, ERROR), False),
    "html": (answer_of(200, b"<html>sorry</html>", "text/html"), False),
    "error as first event": (events_of(ERROR), False),
    "resets after headers": (HEAD_ONLY, True),
}
REFUSAL = answer_of(400, {"error": {"message": "top_k is out of range"}})


class Vendor:
    """An upstream that answers with the result of `behave(prompt, key)`: (status, body,
    headers)."""

    def __init__(self):
        self.behave = lambda prompt, key: (200, ANSWER, {})
        self.list = lambda key: (200, LIST, {})
        self.asked = []  # (method, prompt, key)
        vendor = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self):
                self._answer("GET", "")

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                self._answer("POST", body["messages"][-1]["content"])

            def _answer(self, method, prompt):
                key = self.headers["Authorization"].removeprefix("Bearer ")
                vendor.asked.append((method, prompt, key))
                how = vendor.list(key) if method == "GET" else vendor.behave(prompt, key)
                status, said, headers = how
                data = json.dumps(said).encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_):
                pass

        class Server(ThreadingHTTPServer):
            request_queue_size = 256
            daemon_threads = True

        self._new = lambda port: Server((HOST, port), Handler)
        self._server = self._new(0)
        self.port = self._server.server_port
        self.url = f"http://{HOST}:{self.port}"
        self._run()

    def _run(self):
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def away(self):
        """Refuse connections until it is `back`. Kept connections have been used up by then."""
        self._server.shutdown()
        self._server.server_close()

    def back(self):
        self._server = self._new(self.port)
        self._run()

    def close(self):
        self.away()

    def count(self, key, method="POST"):
        return sum((one[0], one[2]) == (method, key) for one in self.asked)


class Switched:
    """An upstream that works until `way` names a fault; counts its requests.

    With `bad_keys` it works for all other keys.
    """

    def __init__(self):
        self.way = None
        self.bad_keys = ()
        self.delay_s = 0.0
        self.asked = []
        self._listener = socket.create_server((HOST, 0), backlog=128)
        self.url = "http://{}:{}".format(*self._listener.getsockname())
        threading.Thread(target=self._serve, daemon=True).start()

    def refuse(self):
        """Stop listening."""
        address = self._listener.getsockname()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        return address

    def listen_again(self, address):
        self._listener = socket.create_server(address, backlog=128)
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _serve(self):
        listener = self._listener
        while True:
            try:
                peer, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._answer, args=(peer,), daemon=True).start()

    def _answer(self, peer):
        with peer, contextlib.suppress(OSError):
            request = read_request(peer)
            key = KEY.search(request)[1].decode()
            way, delay_s = self.way, self.delay_s
            if self.bad_keys and key not in self.bad_keys:
                way = None
            self.asked.append(way if not delay_s else "slow")
            time.sleep(delay_s)
            if way is None:
                streamed = b'"stream":true' in request.replace(b" ", b"")
                peer.sendall(events_of(CHUNK) if streamed else answer_of(200, ANSWER))
                return
            data, reset = (REFUSAL, False) if way == "400" else WAYS[way]
            peer.sendall(data)
            if reset:
                peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
