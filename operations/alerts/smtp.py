"""Mail by SMTP, for the sender of alerts."""

import smtplib
import ssl
from collections.abc import Sequence
from email.message import EmailMessage
from urllib.parse import unquote, urlsplit

SMTP_S = 10.0
LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that get the password even without TLS."""
SMTP_PORT, SMTPS_PORT = 587, 465


def problem_of(url: str, mails: Sequence[EmailMessage]) -> str:
    """Send mails in one session with the server of an address. Return why it does not accept all of
    them; empty if it does."""
    try:
        _deliver(url, mails)
    except smtplib.SMTPResponseException as error:
        reason = error.smtp_error
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        return f"{error.smtp_code} {text}"
    except (OSError, smtplib.SMTPException) as error:
        return str(error) or type(error).__name__
    return ""


def _deliver(url: str, mails: Sequence[EmailMessage]) -> None:
    parts = urlsplit(url)
    host, tls = parts.hostname or "", ssl.create_default_context()
    if parts.scheme == "smtps":
        server: smtplib.SMTP = smtplib.SMTP_SSL(
            host, parts.port or SMTPS_PORT, timeout=SMTP_S, context=tls
        )
    else:
        server = smtplib.SMTP(host, parts.port or SMTP_PORT, timeout=SMTP_S)
    with server:
        if parts.scheme == "smtp":
            server.ehlo()
            if server.has_extn("starttls"):
                server.starttls(context=tls)
            elif parts.username and host not in LOOPBACK:
                raise smtplib.SMTPException("the server offers no TLS for the password")
        if parts.username:
            server.login(unquote(parts.username), unquote(parts.password or ""))
        for mail in mails:
            server.send_message(mail)
