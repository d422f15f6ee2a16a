"""A small upstream for tests: one answer for each request, on a connection of its own."""

import contextlib
import json
import socket
import threading

PATIENCE_S = 20
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "model": "up",
    "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
    ],
    "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
}


CHUNK = {
    "id": "chatcmpl-1",
    "object": "chat.completion.chunk",
    "model": "up",
    "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}],
}
ERROR = {"error": {"message": "broken", "type": "server_error", "code": "internal_error"}}


def answer_of(status, body, kind="application/json", connection="close", **headers):
    """`body`: bytes, or what JSON can say; names of headers with _ in the place of -."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Connection: {connection}", "", ""]).encode() + data


def events_of(*events):
    """An answer of these events, whole."""
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    return answer_of(200, body + b"data: [DONE]\n\n", "text/event-stream")


GOOD = answer_of(200, ANSWER)


class Echo:
    """Keeps the requests, answers each, closes. `answer`: bytes, or a function of the request."""

    def __init__(self, tls=None):
        self.requests = []
        self.answer = GOOD
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._listen, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _listen(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                with connection, contextlib.suppress(OSError):
                    self._serve(connection)

    def _serve(self, connection):
        if self._tls is None:
            self._answer(connection)
        else:
            with self._tls.wrap_socket(connection, server_side=True) as wrapped:
                self._answer(wrapped)

    def _answer(self, connection):
        connection.settimeout(PATIENCE_S)
        with connection.makefile("rb") as reader:
            head = b""
            while not head.endswith(b"\r\n\r\n"):
                line = reader.readline()
                if not line:
                    return
                head += line
            lines = head.decode().lower().splitlines()
            sizes = [int(line[15:]) for line in lines if line.startswith("content-length:")]
            size = sizes[0] if sizes else 0
            request = (head + reader.read(size)).decode()
            self.requests.append(request)
        connection.sendall(self.answer(request) if callable(self.answer) else self.answer)
