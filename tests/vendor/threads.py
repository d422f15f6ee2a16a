"""The conversations that the messages vendor keeps for clients that ask for it (`thread`).

Bounded in number, lost with the process; each message can be continued any number of times.
Imported by the messages family.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

from demo.family import ModelRequest
from tests.vendor.family import Refusal
from tests.vendor.fields import Fields

THREADS_MAX = 100
CREATE_ONLY = ("system", "tools")  # part of the thread, and not repeated


class Threads:
    """The history up to the last message of each thread; the oldest are dropped first."""

    def __init__(self) -> None:
        self._found: OrderedDict[str, dict[str, Any]] = OrderedDict()

    def resumed(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request with its thread's history inserted; unchanged if it continues none."""
        request = Fields(body)
        thread = request.object("thread")
        if thread is None or thread.choice("type", "create", "continue") != "continue":
            return body
        history = self._found.get(thread.text("previous_message_id"))
        if history is None:
            raise Refusal(
                "No thread was found for previous_message_id",
                kind="plain",
                status=404,
                code="thread_not_found",
            )
        repeated = next((name for name in CREATE_ONLY if request.has(name)), None)
        if repeated is not None:
            raise Refusal("must not be repeated", request.at(repeated))
        return {
            **history,
            **body,
            "messages": [*history["messages"], *(body.get("messages") or [])],
        }

    def keep(self, ask: ModelRequest, name: str, content: list[dict[str, Any]]) -> None:
        """Keep the conversation of a request that asks for it, under the id of its answer."""
        if not ask.body.get("thread"):
            return
        reply = {"role": "assistant", "content": content}
        history = {part: ask.body[part] for part in CREATE_ONLY if part in ask.body}
        self._found[name] = {**history, "messages": [*ask.body["messages"], reply]}
        if len(self._found) > THREADS_MAX:
            self._found.popitem(last=False)
