"""Running of handlers: without a task, from one awaited future to the next."""

import asyncio

import pytest

from handlers.http.run import HandlerRun


class Handler:
    """A handler with given work; `errors` are the statuses that it was asked to answer with."""

    call_id = "01CALL"

    def __init__(self, work):
        self.work, self.errors = work, []

    def body_done(self):
        return self.work

    def write_error(self, status_code):
        self.errors.append(status_code)


async def turns(count=3):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_work_begins_at_once_and_goes_on_when_it_has_what_it_waits_for():
    done, first, second = [], asyncio.Future(), asyncio.Future()

    async def work():
        done.append("begun")
        done.append(await first)
        await asyncio.sleep(0)
        done.append(await second)

    handler = Handler(work())
    HandlerRun(handler).finish()
    assert done == ["begun"]
    first.set_result("first")
    await turns()
    assert done == ["begun", "first"]
    second.set_result("second")
    await turns()
    assert done == ["begun", "first", "second"] and handler.errors == []


async def test_what_it_waits_for_raises_inside_it():
    caught, future = [], asyncio.Future()

    async def work():
        try:
            await future
        except LookupError as error:
            caught.append(error)

    handler = Handler(work())
    HandlerRun(handler).finish()
    future.set_exception(error := LookupError("gone"))
    await turns()
    assert caught == [error] and handler.errors == []


@pytest.mark.parametrize("cancelled", [False, True])
async def test_a_bug_after_a_wait_and_a_cancelled_wait_are_a_500_each(cancelled, caplog):
    future = asyncio.Future()

    async def work():
        await future
        raise RuntimeError("a bug")

    handler = Handler(work())
    HandlerRun(handler).finish()
    if cancelled:
        future.cancel()
    else:
        future.set_result(None)
    await turns()
    assert handler.errors == [500]
    assert ("CancelledError" if cancelled else "a bug") in caplog.text
