"""A provider of OpenID Connect: what it says of itself, its keys, and who a code stands for.

Authorization code with PKCE, state and nonce. Everything that comes from the provider is bounded in
size and time, and its certificate is verified. ID tokens are taken with RS256 or ES256 only.
"""

import base64
import hashlib
import json
import secrets
import time
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import jwt
from tornado.httpclient import HTTPClientError, HTTPError, HTTPRequest, HTTPResponse
from tornado.simple_httpclient import SimpleAsyncHTTPClient

from conf.settings import HubSettings
from handlers.hub.access.provider import BACK, Ask, ProviderError
from operations.client_settings import hub_url

ALGORITHMS = ("RS256", "ES256")
CONNECT_TIMEOUT_S = 5.0
ANSWER_TIMEOUT_S = 10.0
MAX_ANSWER_BYTES = 262_144
MAX_KEYS = 64
KEPT_S = 3600.0  # what the provider says of itself, and its keys
KEYS_AGAIN_S = 60.0  # how often an unknown key may ask for them anew
CLOCK_LEEWAY_S = 60
RANDOM_BYTES = 32
ENDPOINTS = ("authorization_endpoint", "token_endpoint", "jwks_uri")


@dataclass(slots=True)
class _Known:
    """What the provider has said, and when."""

    said: dict[str, Any]
    at_s: float


class OpenIdProvider:
    """The provider of the settings."""

    def __init__(self, hub: HubSettings) -> None:
        self.issuer = hub.oidc_issuer
        self._client_id, self._client_secret = hub.oidc_client_id, hub.oidc_client_secret
        self._back = hub_url(hub) + BACK
        self._about: _Known | None = None
        self._keys: _Known | None = None

    async def ask(self) -> Ask:
        """A new sign-in. Raises ProviderError."""
        about = await self._discover()
        state, nonce, verifier = (secrets.token_urlsafe(RANDOM_BYTES) for _ in range(3))
        challenge = hashlib.sha256(verifier.encode()).digest()
        query = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": self._back,
            "scope": "openid",
            "state": state,
            "nonce": nonce,
            "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
            "code_challenge_method": "S256",
        }
        place = about["authorization_endpoint"]
        url = f"{place}{'&' if urlsplit(place).query else '?'}{urlencode(query)}"
        return Ask(url, state, nonce, verifier)

    async def subject(self, code: str, nonce: str, verifier: str) -> str:
        """For whom a code stands: the provider's name of the user. Raises ProviderError."""
        about = await self._discover()
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._back,
            "code_verifier": verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        basic = "client_secret_basic"
        if self._client_secret and basic in about.get(
            "token_endpoint_auth_methods_supported", [basic]
        ):
            pair = f"{quote(self._client_id, safe='')}:{quote(self._client_secret, safe='')}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_id"] = self._client_id
            if self._client_secret:
                form["client_secret"] = self._client_secret
        answer = await self._fetch(about["token_endpoint"], urlencode(form), headers)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise ProviderError("the provider sent no ID token")
        return await self._checked(token, nonce)

    async def _checked(self, token: str, nonce: str) -> str:
        try:
            head = jwt.get_unverified_header(token)
            algorithm = head.get("alg")
            if algorithm not in ALGORITHMS:
                raise ProviderError(f"the ID token is signed with {algorithm}")
            key = await self._key(head.get("kid"), algorithm)
            claims: dict[str, Any] = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._client_id,
                issuer=self.issuer,
                leeway=CLOCK_LEEWAY_S,
                options={"require": ["exp", "iat", "aud", "iss", "sub", "nonce"]},
            )
        except jwt.PyJWTError as error:
            raise ProviderError(f"the ID token is not valid: {error}") from None
        if not secrets.compare_digest(str(claims["nonce"]).encode(), nonce.encode()):
            raise ProviderError("the ID token is of another sign-in")
        if claims.get("azp", self._client_id) != self._client_id:
            raise ProviderError("the ID token is for another client")
        return str(claims["sub"])

    async def _key(self, key_id: str | None, algorithm: str) -> jwt.PyJWK:
        now_s = time.monotonic()
        for least_age_s in (KEPT_S, KEYS_AGAIN_S):
            if self._keys is None or now_s - self._keys.at_s >= least_age_s:
                about = await self._discover()
                self._keys = _Known(await self._fetch(about["jwks_uri"]), now_s)
            found = self._keys.said.get("keys")
            for one in found[:MAX_KEYS] if isinstance(found, list) else ():
                if isinstance(one, dict) and _fits(one, key_id, algorithm):
                    return jwt.PyJWK(one, algorithm)
        raise ProviderError("the provider has no key that fits the ID token")

    async def _discover(self) -> dict[str, Any]:
        now_s = time.monotonic()
        if self._about is None or now_s - self._about.at_s >= KEPT_S:
            place = self.issuer.rstrip("/") + "/.well-known/openid-configuration"
            said = await self._fetch(place)
            if said.get("issuer") != self.issuer:
                raise ProviderError("the discovery document is of another issuer")
            for name in ENDPOINTS:
                if not self._is_safe(said.get(name)):
                    raise ProviderError(f"the discovery document has no safe {name}")
            self._about = _Known(said, now_s)
        return self._about.said

    def _is_safe(self, url: object) -> bool:
        """With TLS, unless the provider itself is on loopback without."""
        schemes = {"https", urlsplit(self.issuer).scheme}
        return isinstance(url, str) and urlsplit(url).scheme in schemes

    async def _fetch(
        self, url: str, form: str | None = None, headers: dict[str, str] | None = None
    ) -> dict[str, Any]:
        client = SimpleAsyncHTTPClient(force_instance=True, max_body_size=MAX_ANSWER_BYTES)
        request = HTTPRequest(
            url,
            method="GET" if form is None else "POST",
            headers={"Accept": "application/json", **(headers or {})},
            body=form,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=ANSWER_TIMEOUT_S,
            follow_redirects=False,
            validate_cert=True,
        )
        try:
            response: HTTPResponse = await client.fetch(request)
            said = json.loads(response.body)
        except (HTTPClientError, HTTPError, OSError, ValueError) as error:
            raise ProviderError(f"{urlsplit(url).netloc} did not answer: {error}") from None
        finally:
            client.close()
        if not isinstance(said, dict):
            raise ProviderError(f"{urlsplit(url).netloc} sent no JSON object")
        return said


def _fits(key: dict[str, Any], key_id: str | None, algorithm: str) -> bool:
    """Whether a key of the provider may have made a signature."""
    kind = "RSA" if algorithm == "RS256" else "EC"
    return (
        key.get("kty") == kind
        and key.get("use", "sig") == "sig"
        and key.get("alg", algorithm) == algorithm
        and (key_id is None or key.get("kid") == key_id)
    )
