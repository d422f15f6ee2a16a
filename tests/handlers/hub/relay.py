"""A relay that answers as a test tells it and records its requests."""

import contextlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from store.values.ids import new_ulid
from tests.handlers.hub.browser import Browser
from tests.support.client import wait_until
from tests.support.ports import free_port

DELTAS = ({"role": "assistant"}, {"content": "Hello "}, {"content": "there."})
_PLACE = {"output_index": 0, "content_index": 0, "item_id": "m"}
_MESSAGE = {"type": "message", "id": "m", "role": "assistant", "content": []}
EVENTS = {
    "/v1/chat/completions": [
        *({"choices": [{"index": 0, "delta": delta}]} for delta in DELTAS),
        {"choices": []},
    ],
    "/v1/responses": [
        {"type": "response.output_item.added", "output_index": 0, "item": _MESSAGE},
        {"type": "response.content_part.added", **_PLACE, "part": {"type": "output_text"}},
        *(
            {"type": "response.output_text.delta", **_PLACE, "delta": d}
            for d in ("Hello ", "there.")
        ),
    ],
    "/v1/messages": [
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "text_delta", "text": "Hello there."},
        },
    ],
    "/v1beta/models/gpt-5:streamGenerateContent": [
        {"candidates": [{"content": {"parts": [{"text": "Hello "}, {"text": "there."}]}}]}
    ],
}
WHOLE = {
    "id": "c",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "Whole."}}],
}


class Relay:
    """A relay. `asked`: (path, headers, body) of each request. `wait`: if cleared, answers wait
    for it after their first event. `cut`: they end there. `gone`: their clients have
    disconnected."""

    def __init__(self):
        self.port, self.asked, self.call_id, self.status = free_port(), [], new_ulid(), 200
        self.message, self.headers, self.cut = "no <b>such</b> model", {}, False
        self.wait, self.gone = threading.Event(), threading.Event()
        self.wait.set()
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                size = int(self.headers["Content-Length"])
                body = json.loads(self.rfile.read(size))
                relay.asked.append((self.path, self.headers, body))
                self.close_connection = True
                try:
                    relay.answer(self, body)
                except OSError:
                    relay.gone.set()

            def log_message(self, *args):
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), Handler)
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def answer(self, handler, body):
        events = [f"data: {json.dumps(event)}\n\n" for event in EVENTS[handler.path.split("?")[0]]]
        streams = body.get("stream", "stream" in handler.path)
        pieces = [*events, "data: [DONE]\n\n"] if streams else [json.dumps(WHOLE)]
        if self.status != 200:
            error = {"error": {"message": self.message}}
            pieces = [json.dumps(error, separators=(",", ":"))]
        handler.send_response(self.status)
        handler.send_header("x-request-id", self.call_id)
        handler.send_header("Transfer-Encoding", "chunked")
        for name, value in self.headers.items():
            handler.send_header(name, value)
        handler.end_headers()
        for number, piece in enumerate(pieces):
            if number and not self.wait.wait(10):
                return
            data = piece.encode()
            handler.wfile.write(b"%x\r\n%b\r\n" % (len(data), data))
            handler.wfile.flush()
            if self.cut and number:
                return
        handler.wfile.write(b"0\r\n\r\n")

    @contextlib.contextmanager
    def two_running(self, browser, ask):
        """Start two calls of a user that wait for their answers; `ask(twin)` makes each."""
        self.wait.clear()
        twins = [Browser(browser.port) for _ in range(2)]
        for twin in twins:
            twin.cookies, twin.xsrf = dict(browser.cookies), browser.xsrf
        threads = [threading.Thread(target=ask, args=(twin,)) for twin in twins]
        for thread in threads:
            thread.start()
        assert wait_until(lambda: len(self.asked) == 2)
        yield
        self.wait.set()
        for thread in threads:
            thread.join(10)

    def close(self):
        self.wait.set()
        self._server.shutdown()
        self._server.server_close()
