"""Requests to the ops port of the node that the configuration names. Imported by commands only."""

import http.client
import json
from typing import Any

from conf.configuration import Loaded, which
from store.values.errors import Refused

OPS_TIMEOUT_S = 5
MAX_ANSWER_BYTES = 64 * 1024 * 1024  # each worker may report many draining channels

_NOT_OURS = (ValueError, KeyError, TypeError, AttributeError)  # not the answer of a gateway
_LOCAL = {"0.0.0.0": "127.0.0.1", "::": "::1"}


def ask_status(loaded: Loaded) -> dict[str, Any]:
    """Return /status with the backlog of all journals. Raises Refused if nothing answers."""
    status = _request(loaded, "GET", "/status")
    try:
        backlog = sum(worker.get("journal_backlog_bytes", 0) for worker in status["workers"])
    except _NOT_OURS as error:
        raise _no_gateway(loaded, error) from None
    return {**status, "journal_backlog_bytes": backlog}


def set_log_level(loaded: Loaded, level: str) -> dict[str, Any]:
    """Change the log level of all processes. Return it. Raises Refused if nothing answers."""
    return _request(loaded, "PUT", "/log-level", {"level": level})


def _request(
    loaded: Loaded, method: str, path: str, fields: dict[str, str] | None = None
) -> dict[str, Any]:
    ops = loaded.settings.ops
    if not ops.enabled:
        raise Refused([f"the ops port is switched off (ops.enabled); {which(loaded.path)}"])
    host = _LOCAL.get(ops.host, ops.host)
    connection = http.client.HTTPConnection(host, ops.port, timeout=OPS_TIMEOUT_S)
    try:
        headers = {"Authorization": f"Bearer {ops.token}"} if ops.token else {}
        body = None if fields is None else json.dumps(fields)
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            problem = f"the gateway at {host}:{ops.port} has another ops.token"
            raise Refused([f"{problem}; {which(loaded.path)}"])
        status = json.loads(answer.read(MAX_ANSWER_BYTES))
        if not isinstance(status, dict):
            raise TypeError
    except (OSError, http.client.HTTPException, *_NOT_OURS) as error:
        raise _no_gateway(loaded, error) from None
    finally:
        connection.close()
    return status


def _no_gateway(loaded: Loaded, error: Exception) -> Refused:
    ops = loaded.settings.ops
    at = f"{_LOCAL.get(ops.host, ops.host)}:{ops.port}"
    problem = f"no gateway answers at {at} (ops.port): {_why(error)}"
    return Refused([f"{problem}; {which(loaded.path)}"])


def _why(error: Exception) -> str:
    """Return why no gateway answered."""
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return "something else listens there"
