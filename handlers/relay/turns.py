"""Long work on the loop, a slice of some ms in a turn, so that no caller's body stops the others.

A thread would not do: decoders and regular expressions keep the interpreter's lock.
"""

import asyncio
import time

from adapters.json.structure import Steps, T
from handlers.relay.call import Call

LARGE_BYTES = 512 << 10  # of a body or an answer; smaller ones are read at one go, within 25 ms
SLICE_S = 0.005


async def in_turns(steps: Steps[T], call: Call) -> T:
    """The result of `steps`, with the turns of others in between; the last step ends a turn, too.

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
