"""A browser without JavaScript: it keeps cookies and sends the hidden fields of the last form."""

import gzip
import html
import http.client
import json
import re
from urllib.parse import urlencode

from tests.support.ports import HOST

PASSWORDS = {"alice": "correct horse", "boss": "battery staple", "carol": "correct horse"}


def submitted_by(page):
    """Return the fields that a browser would send from the first form with a Save button."""
    form = next(text for text in re.findall(r"<form.*?</form>", page, re.S) if ">Save" in text)
    fields = []
    for tag in re.findall(r"<input\b[^>]*>", form):
        attributes = dict(re.findall(r'([\w.-]+)="([^"]*)"', tag))
        if attributes.get("type") in ("checkbox", "radio") and " checked" not in tag:
            continue
        if attributes.get("name", "_xsrf") != "_xsrf":
            fields.append((attributes["name"], html.unescape(attributes.get("value", ""))))
    areas = re.findall(r'<textarea[^>]*name="([\w.]+)"[^>]*>\n(.*?)</textarea>', form, re.S)
    fields += [(name, html.unescape(text).replace("\n", "\r\n")) for name, text in areas]
    for name, options in re.findall(r'<select[^>]*name="(\w+)"[^>]*>(.*?)</select>', form, re.S):
        fields += [(name, value) for value in re.findall(r'value="([^"]*)" selected', options)]
    return fields


class Answer:
    """A response."""

    def __init__(self, response, body):
        self.status, self.headers = response.status, response.headers
        self.body = body
        packed = self.headers.get("Content-Encoding") == "gzip" and body
        self.text = (gzip.decompress(body) if packed else body).decode()
        self.cookies = response.headers.get_all("Set-Cookie") or []

    @property
    def json(self):
        return json.loads(self.text)

    @property
    def place(self):
        return self.headers["Location"]


class Browser:
    """A browser that follows no redirects; with a token it acts as a script."""

    def __init__(self, port, token=None):
        self.port, self.token, self.cookies, self.xsrf = port, token, {}, ""

    def ask(self, method, path, body=None, **headers):
        if self.cookies:
            headers["Cookie"] = "; ".join(f"{name}={value}" for name, value in self.cookies.items())
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        connection = http.client.HTTPConnection(HOST, self.port, timeout=20)
        try:
            connection.request(method, path, body, headers)
            response = connection.getresponse()
            answer = Answer(response, response.read())
        finally:
            connection.close()
        for cookie in answer.cookies:
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        if found := re.search(r'name="_xsrf" value="([^"]*)"', answer.text):
            self.xsrf = html.unescape(found[1])
        return answer

    def get(self, path, **headers):
        return self.ask("GET", path, **headers)

    def send(self, path, fields, *, xsrf=True, **headers):
        """Send a form, with the token of the last one."""
        fields = [*fields, ("_xsrf", self.xsrf)] if xsrf else fields
        headers["Content-Type"] = "application/x-www-form-urlencoded"
        return self.ask("POST", path, urlencode(fields), **headers)

    def api(self, method, path, body=None, *, xsrf=True):
        """Call the JSON API, with the token of the last form."""
        headers = {"Content-Type": "application/json"}
        headers |= {"X-XSRFToken": self.xsrf} if xsrf else {}
        return self.ask(method, path, None if body is None else json.dumps(body), **headers)

    def make(self, name, **fields):
        """Create a key; return its id."""
        answer = self.api("POST", "/api/keys", {"name": name, **fields})
        assert answer.status == 201, answer.text
        return answer.json["id"]

    def sign_in(self, name, password, path="/", **headers):
        self.get("/sign-in")
        fields = [("name", name), ("password", password), ("next", path)]
        return self.send("/sign-in", fields, **headers)

    def signed_in(self, name):
        assert self.sign_in(name, PASSWORDS[name]).status == 303
        self.get("/account")
        return self
