"""Long work on the loop in slices of some ms, so that no caller's body blocks the others.

A thread would not help: decoders and regular expressions keep the interpreter's lock.
"""

import asyncio
import time

from adapters.json.structure import Steps, T
from handlers.relay.call import Call

LARGE_BYTES = 512 << 10  # of a body; smaller ones are read at once, within 25 ms
SLICE_S = 0.005


async def in_turns(steps: Steps[T], call: Call) -> T:
    """The result of `steps`, run in slices with other work in between.

    Raises what they raise, and the call's Interrupt as soon as it has one.
    """
    try:
        while True:
            await asyncio.sleep(0)
            if call.interrupted is not None:
                steps.close()
                raise call.interrupted
            until_s = time.monotonic() + SLICE_S
            while not next(steps) and time.monotonic() < until_s:
                pass
    except StopIteration as ended:
        result: T = ended.value
    await asyncio.sleep(0)
    return result
