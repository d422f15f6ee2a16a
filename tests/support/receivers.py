"""Receivers of alerts for tests: a strict mail server, and a webhook that keeps what it
receives."""

import base64
import email
import email.policy
import json
import re
import socketserver
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

HOST = "127.0.0.1"
USER, PASSWORD = "sluice", "pass/word%"


class _Served:
    """A context manager around a server of the standard library, in a thread of its own."""

    def __enter__(self):
        handle_error = self.server.handle_error

        def handle(*request):
            if not isinstance(sys.exception(), ConnectionError):  # a sender may disconnect
                handle_error(*request)

        self.server.handle_error = handle
        self._thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()


class Webhook(_Served):
    """A webhook. `answer`: (status, body) of all requests; `received`: (headers, body) of each;
    `wait_s`: how long an answer takes."""

    def __init__(self):
        self.answer, self.received, self.wait_s, self.headers = (200, b"ok"), [], 0.0, {}
        self.server = ThreadingHTTPServer((HOST, 0), self._handler())
        self.url = f"http://{HOST}:{self.server.server_port}/hook/secret-part"

    def documents(self):
        return [json.loads(body) for _, body in self.received]

    def _handler(self):
        webhook = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                webhook.received.append((dict(self.headers), body))
                time.sleep(webhook.wait_s)
                status, text = webhook.answer
                self.send_response(status)
                for name, value in webhook.headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *args):
                pass

        return Handler


class MailServer(_Served):
    """An SMTP server (RFC 5321), one session at a time. It refuses commands out of order, bare LF
    and lines that are too long. It requires a login (AUTH PLAIN); `refusal`: its reply to RCPT
    instead of a success."""

    def __init__(self):
        self.mails, self.recipients, self.refusal = [], [], ""
        self.server = socketserver.ThreadingTCPServer((HOST, 0), self._handler())
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        self.url = f"smtp://{USER}:pass%2Fword%25@{HOST}:{self.port}"

    def _handler(self):
        server = self

        class Session(socketserver.StreamRequestHandler):
            def handle(self):
                self.user, self.sender, self.to = None, None, []
                self.reply("220 mail.test ESMTP")
                while (line := self.rfile.readline(514)) and self.obey(line):
                    pass

            def reply(self, text):
                self.wfile.write(text.encode() + b"\r\n")
                return True

            def obey(self, line):
                if not line.endswith(b"\r\n"):
                    return self.reply("500 a line ends in CR LF, after 510 bytes at most")
                order = line[:-2].decode("ascii")
                verb = order.split(" ")[0].upper()
                if verb == "QUIT":
                    self.reply("221 bye")
                    return False
                return getattr(self, f"on_{verb.lower()}", self.on_unknown)(order)

            def on_unknown(self, order):
                return self.reply("502 not implemented")

            def on_ehlo(self, order):
                return self.reply("250-mail.test\r\n250 AUTH PLAIN")

            def on_rset(self, order):
                self.sender, self.to = None, []
                return self.reply("250 ok")

            def on_auth(self, order):
                _, method, token = order.split(" ")
                _, user, password = base64.b64decode(token).decode().split("\0")
                if (method, user, password) != ("PLAIN", USER, PASSWORD):
                    return self.reply("535 who are you")
                self.user = user
                return self.reply("235 welcome")

            def on_mail(self, order):
                match = re.match(r"MAIL FROM:<([^<>@\s]+@[^<>@\s]+)>", order, re.IGNORECASE)
                if not self.user or self.sender or match is None:
                    return self.reply("503 log in, and begin one mail at a time")
                self.sender = match[1]
                return self.reply("250 ok")

            def on_rcpt(self, order):
                match = re.fullmatch(r"RCPT TO:<([^<>@\s]+@[^<>@\s]+)>", order, re.IGNORECASE)
                if server.refusal or not self.sender or match is None:
                    return self.reply(server.refusal or "503 from whom, to whom")
                self.to.append(match[1])
                return self.reply("250 ok")

            def on_data(self, order):
                if not self.to:
                    return self.reply("503 to whom")
                self.reply("354 go on")
                lines = []
                while (line := self.rfile.readline(1002)) != b".\r\n":
                    if not line.endswith(b"\r\n"):
                        return self.reply("500 a line ends in CR LF, after 998 bytes at most")
                    lines.append(line[1:] if line.startswith(b"..") else line)
                mail = email.message_from_bytes(b"".join(lines), policy=email.policy.default)
                if mail.defects or not mail["Message-ID"] or mail["From"] != self.sender:
                    return self.reply("554 no proper mail")
                server.mails.append(mail)
                server.recipients.append(tuple(self.to))
                self.sender, self.to = None, []
                return self.reply("250 taken")

        return Session
