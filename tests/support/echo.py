"""A small upstream for tests that answers each request on a connection of its own."""

import json

from tests.support.upstream import RawUpstream

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
    """Return the bytes of an answer. `body`: bytes, or a value for JSON; _ in header names stands
    for -."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(data)}"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, f"Connection: {connection}", "", ""]).encode() + data


def events_of(*events):
    """Return a complete answer with these events."""
    body = b"".join(b"data: %b\n\n" % json.dumps(event).encode() for event in events)
    return answer_of(200, body + b"data: [DONE]\n\n", "text/event-stream")


GOOD = answer_of(200, ANSWER)


class Echo(RawUpstream):
    """A server that keeps the requests, answers each and closes. `answer`: bytes, or a function of
    the request."""

    def __init__(self, tls=None):
        self.requests = []
        self.answer = GOOD
        super().__init__(self._kept, tls)

    def _kept(self, received):
        request = received.decode()
        self.requests.append(request)
        return self.answer(request) if callable(self.answer) else self.answer
