"""An OpenID Connect provider for tests: strict about what a client must send, and able to lie.

Everyone who signs in does so as `subject`. A test can change the `claims` of ID tokens, the
`algorithm` and key that sign them, and the `documents`.
"""

import base64
import hashlib
import json
import secrets
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlencode, urlsplit

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa

HOST = "127.0.0.1"
CLIENT_ID, CLIENT_SECRET = "the-hub", "a secret of the hub?"
LIFETIME_S = 300


class OpenIdProvider:
    """A context manager; the provider listens on a free port."""

    def __init__(self):
        self.keys = {
            "RS256": rsa.generate_private_key(public_exponent=65537, key_size=2048),
            "ES256": ec.generate_private_key(ec.SECP256R1()),
        }
        self.server = ThreadingHTTPServer((HOST, 0), _handler_of(self))
        self.issuer = f"http://{HOST}:{self.server.server_port}"
        self.reset()
        self._thread = threading.Thread(target=self.server.serve_forever, daemon=True)

    def reset(self):
        """Make the provider honest again and forget all requests."""
        self.subject, self.algorithm, self.signing_key = "subject-of-alice", "RS256", None
        self.claims, self.documents, self.codes, self.asked = {}, {}, {}, []

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self.server.shutdown()
        self.server.server_close()
        self._thread.join()

    def discovery(self):
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
        }

    def jwks(self):
        makers = {"RS256": jwt.algorithms.RSAAlgorithm, "ES256": jwt.algorithms.ECAlgorithm}
        keys = []
        for name, key in self.keys.items():
            public = json.loads(makers[name].to_jwk(key.public_key()))
            keys.append({**public, "kid": name, "use": "sig", "alg": name})
        return {"keys": keys}

    def authorize(self, query):
        """Return the URL to which the browser is redirected after a sign-in as `subject`."""
        given = {name: values[0] for name, values in parse_qs(query).items()}
        self.asked.append(given)
        assert given["response_type"] == "code" and given["client_id"] == CLIENT_ID
        assert given["code_challenge_method"] == "S256" and "openid" in given["scope"].split()
        code = secrets.token_urlsafe(16)
        self.codes[code] = given
        answer = {"code": code, "state": given["state"], "iss": self.issuer}
        return f"{given['redirect_uri']}?{urlencode(answer)}"

    def token(self, form, authorization):
        """Return the answer to the exchange of a code: (status, body)."""
        given = {name: values[0] for name, values in parse_qs(form).items()}
        user, _, password = base64.b64decode(authorization.removeprefix("Basic ")).partition(b":")
        if (unquote(user.decode()), unquote(password.decode())) != (CLIENT_ID, CLIENT_SECRET):
            return 401, {"error": "invalid_client"}
        asked = self.codes.pop(given.get("code", ""), None)
        digest = hashlib.sha256(given.get("code_verifier", "").encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if (
            asked is None
            or challenge != asked["code_challenge"]
            or given.get("redirect_uri") != asked["redirect_uri"]
        ):
            return 400, {"error": "invalid_grant"}
        now_s = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": CLIENT_ID,
            "sub": self.subject,
            "nonce": asked["nonce"],
            "iat": now_s,
            "exp": now_s + LIFETIME_S,
        }
        claims = {n: v for n, v in {**claims, **self.claims}.items() if v is not None}
        key = self.signing_key or self.keys.get(self.algorithm)
        token = jwt.encode(claims, key, self.algorithm, headers={"kid": self.algorithm})
        return 200, {"access_token": "unused", "token_type": "Bearer", "id_token": token}


def _handler_of(provider):
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            parts = urlsplit(self.path)
            if parts.path in provider.documents:
                self.answer(200, provider.documents[parts.path])
            elif parts.path == "/.well-known/openid-configuration":
                self.answer(200, provider.discovery())
            elif parts.path == "/keys":
                self.answer(200, provider.jwks())
            elif parts.path == "/authorize":
                self.send_response(302)
                self.send_header("Location", provider.authorize(parts.query))
                self.send_header("Content-Length", "0")
                self.end_headers()
            else:
                self.answer(404, {})

        def do_POST(self):
            form = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self.answer(*provider.token(form, self.headers.get("Authorization", "")))

        def answer(self, status, body):
            text = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *args):
            """Log nothing: tests look at the recorded requests."""

    return Handler
