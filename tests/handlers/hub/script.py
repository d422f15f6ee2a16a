"""A script that uses the JSON API."""

import json

from tests.handlers.hub.browser import Browser

UPSTREAM_KEY = "sk-upstream-0123456789"
MODEL = {"name": "gpt-4.1", "price": {"input": "2", "output": "8"}}
CHANNEL = {
    "name": "main",
    "vendor": "openai-compatible",
    "family": "chat_completions",
    "base_url": "http://127.0.0.1:9",
    "keys": [UPSTREAM_KEY],
    "models": {"gpt-4.1": "up-model"},
}


def http(body, status="200 OK"):
    """Return an upstream's answer."""
    text = json.dumps(body)
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(text)}"
    return f"{head}\r\n\r\n{text}".encode()


class Script(Browser):
    """A browser with a token; bodies and answers are JSON."""

    def call(self, method, path, body=None):
        return self.ask(method, path, None if body is None else json.dumps(body))

    def create(self, plural, *bodies):
        """Create objects of a kind; return the last one as answered."""
        for body in bodies:
            answer = self.call("POST", f"/api/admin/{plural}", body)
            assert answer.status == 201, answer.text
        return answer.json

    def listed(self, path):
        answer = self.get(path)
        assert answer.status == 200, answer.text
        return answer.json["items"]

    def refused(self, method, path, body=None):
        """Make a call that must be refused; return (status, field, message)."""
        answer = self.call(method, path, body)
        error = answer.json["error"]
        return answer.status, error["field"], error["message"]
