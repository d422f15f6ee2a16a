"""Memory of a worker for request bodies: bounded in total, and for each user and key.

Bodies are in memory before a rate limit counts their calls, so their bytes have separate limits.
handlers.entries.intake counts a body while it arrives, then handlers.relay.pipeline until it is
handed on. Each worker counts its own memory.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NoReturn

from adapters.faults import Condition, Fault

USER_SHARE = 4  # a user holds at most this fraction of the memory
KEY_SHARE = 8
RETRY_AFTER_S = 1
_MIB = 1 << 20


@dataclass(slots=True)
class _Holder:
    """The bodies of a user or a key."""

    held_bytes: int = 0
    bodies: int = 0
    unfinished: "dict[BodyHold, None]" = field(default_factory=dict)  # the oldest first


class BodyMemory:
    """The bytes that one worker holds for bodies: at most `total_bytes`. A user gets a quarter of
    them and a key an eighth, but always one whole body. `on_refused` is called at each refusal with
    the name of the limit, such as `key_body_memory`."""

    def __init__(
        self, total_bytes: int, on_refused: Callable[[str], None] = lambda limit: None
    ) -> None:
        self.total_bytes = total_bytes
        self.user_bytes = total_bytes // USER_SHARE
        self.key_bytes = total_bytes // KEY_SHARE
        self.held_bytes = 0
        self.users: dict[str, _Holder] = {}
        self.keys: dict[str, _Holder] = {}
        self._on_refused = on_refused

    def hold(self, evict: Callable[[Fault], None], user_id: str, key_id: str) -> "BodyHold":
        """Start to count the bytes of an unfinished body, until it is released. `evict` is called
        to end the body."""
        return BodyHold(self, evict, user_id, key_id)

    def make_space(self, hold: "BodyHold", more_bytes: int) -> None:
        """Return once the body may grow by `more_bytes`. Raises Fault RATE_LIMITED beyond the
        share of its key or user, or if this body is the one to evict, and UNAVAILABLE if the memory
        is full and no other body is unfinished."""
        shares = ("key", hold.key, self.key_bytes), ("user", hold.user, self.user_bytes)
        for scope, holder, share_bytes in shares:
            if holder.bodies > 1 and holder.held_bytes + more_bytes > share_bytes:
                self._refuse(scope, share_bytes)
        while self.held_bytes + more_bytes > self.total_bytes:
            self._evict_for(hold)

    def _refuse(self, scope: str, share_bytes: int) -> NoReturn:
        self._on_refused(f"{scope}_body_memory")
        whose = "this API key" if scope == "key" else "this user"
        raise _rate_limited(
            f"Rate limit reached: {size_text(share_bytes)} of request bodies of {whose} are waiting"
            f" here. Send fewer large requests at once. Try again in {RETRY_AFTER_S}s."
        )

    def _evict_for(self, hold: "BodyHold") -> None:
        """End the oldest unfinished body of the largest holder."""
        holders = [user for user in self.users.values() if user.unfinished]
        other_bodies = sum(len(user.unfinished) for user in holders) - (
            hold in hold.user.unfinished
        )
        if not other_bodies:
            raise Fault(Condition.UNAVAILABLE, retry_after_s=RETRY_AFTER_S)
        largest = max(holders, key=lambda user: user.held_bytes)
        victim = next(iter(largest.unfinished))
        self._on_refused("body_memory")
        fault = _rate_limited(
            "Rate limit reached: the gateway's memory for request bodies is full, and this user"
            f" holds most of it. Try again in {RETRY_AFTER_S}s."
        )
        if victim is hold:
            raise fault
        victim.release()
        victim.evict(fault)


class BodyHold:
    """The bytes counted for one body. The body can be evicted until `finish`."""

    __slots__ = ("_memory", "evict", "held_bytes", "key", "key_id", "user", "user_id")

    def __init__(
        self, memory: BodyMemory, evict: Callable[[Fault], None], user_id: str, key_id: str
    ) -> None:
        self._memory: BodyMemory | None = memory
        self.evict = evict
        self.user_id, self.key_id = user_id, key_id
        self.held_bytes = 0
        self.user, self.key = _holder(memory.users, user_id), _holder(memory.keys, key_id)
        self.user.unfinished[self] = None
        self.user.bodies += 1
        self.key.bodies += 1

    def resize(self, held_bytes: int) -> None:
        """Set the body's count to `held_bytes`. Raises Fault RATE_LIMITED or UNAVAILABLE if they
        are too many; the count is then unchanged. Does nothing after release."""
        memory = self._memory
        if memory is None:
            return
        more_bytes, user, key = held_bytes - self.held_bytes, self.user, self.key
        if (
            memory.held_bytes + more_bytes > memory.total_bytes
            or user.held_bytes + more_bytes > memory.user_bytes
            or key.held_bytes + more_bytes > memory.key_bytes
        ) and more_bytes > 0:
            memory.make_space(self, more_bytes)
        self.held_bytes = held_bytes
        user.held_bytes += more_bytes
        key.held_bytes += more_bytes
        memory.held_bytes += more_bytes

    def finish(self) -> None:
        """Note that the body is complete and can no longer be evicted. Idempotent."""
        self.user.unfinished.pop(self, None)

    def release(self) -> None:
        """Stop counting the body, which was handed on or dropped. Idempotent."""
        memory, self._memory = self._memory, None
        if memory is None:
            return
        self.finish()
        memory.held_bytes -= self.held_bytes
        for holders, name, holder in (
            (memory.users, self.user_id, self.user),
            (memory.keys, self.key_id, self.key),
        ):
            holder.held_bytes -= self.held_bytes
            holder.bodies -= 1
            if not holder.bodies:
                del holders[name]


def _holder(holders: dict[str, _Holder], name: str) -> _Holder:
    if (holder := holders.get(name)) is None:
        holders[name] = holder = _Holder()
    return holder


def _rate_limited(message: str) -> Fault:
    return Fault(Condition.RATE_LIMITED, message, retry_after_s=RETRY_AFTER_S)


def size_text(size_bytes: int) -> str:
    """Return a size in the form used in messages."""
    return f"{size_bytes // _MIB} MiB" if size_bytes % _MIB == 0 else f"{size_bytes} bytes"
