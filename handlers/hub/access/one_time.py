"""One-time codes: which period a code is of, and the picture that an authenticator scans.

RFC 6238 with what all authenticators know: SHA-1, six digits, thirty seconds.
"""

import hmac
import importlib
from typing import Any

import pyotp

PERIOD_S = 30
DRIFT_PERIODS = 1  # how far the clock of a phone may be off, each way
ISSUER = "Sluice"
QR_SCALE = 4


def new_secret() -> str:
    """A secret to be shared with an authenticator: 160 random bits in base32."""
    return pyotp.random_base32()


def step_of(secret: str, code: str, now_s: float) -> int | None:
    """The period that a code is of; None when it is of none that counts now."""
    machine, current = pyotp.TOTP(secret), int(now_s) // PERIOD_S
    typed = "".join(code.split()).encode("utf-8", "surrogatepass")
    for step in range(current - DRIFT_PERIODS, current + DRIFT_PERIODS + 1):
        if hmac.compare_digest(machine.at(step * PERIOD_S).encode(), typed):
            return step
    return None


def address(secret: str, user: str) -> str:
    """What an authenticator takes in: otpauth://…"""
    return pyotp.TOTP(secret).provisioning_uri(name=user, issuer_name=ISSUER)


def picture(text: str) -> str:
    """A text as a QR code, in SVG without style attributes: dark on white in each theme."""
    # By name: its 1.7 MB are loaded when somebody sets codes up.
    segno: Any = importlib.import_module("segno")
    code = segno.make(text, error="m", micro=False)
    svg: str = code.svg_inline(
        scale=QR_SCALE, dark="#12201e", light="#fff", svgclass="qr", lineclass=None
    )
    return svg
