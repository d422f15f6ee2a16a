"""The cost of counting for a call, and of a scrape of many models for the supervisor.

    python -m tools.bench.metrics

Compares words of shared memory with counts in the process's own memory, from which a worker would
send them over a pipe once a second. Minimum of five rounds, thread CPU.
"""

import json
import os

import click

from commands.process.metrics import Totals, WordReader, WordTable, text_of
from handlers.telemetry.metrics import Metrics, PrivateTable
from store.values.usage import Usage
from store.values.usage_record import AttemptRecord, CallFacts, UsageRecord
from tools.bench.harness import least_us

CALLS = 20_000
MODELS = 200


def _record(model: str, *, stream: bool) -> UsageRecord:
    call = CallFacts(1, "u", "alice", "k", "n", "g", "/v1/messages", "messages", model, stream)
    return UsageRecord(
        id="01ARZ3NDEKTSV4RRFFQ69G5FAV",
        call=call,
        status=200,
        usage=Usage(20, 30),
        usage_source="reported",
        cost_nanos=1500,
        ttft_ms=3,
        duration_ms=9,
        attempts=(AttemptRecord("main", 200),),
    )


def _count(name: str, metrics: Metrics) -> None:
    metrics.models = {"m"}
    for kind in (False, True):
        record = _record("m", stream=kind)

        def work(record: UsageRecord = record) -> None:
            metrics.call_ended(record, 250)

        took = least_us(work, CALLS)
        click.echo(f"{name}, {'stream' if kind else 'plain'}: {took:.2f} us a call")


def _message(own: PrivateTable) -> None:
    reading, writing = os.pipe()

    def work() -> None:
        data = json.dumps(own.words.tolist()).encode()
        os.write(writing, data[:4096])
        os.read(reading, 4096)

    click.echo(f"a message of {len(own.words)} words: {least_us(work, 100):.0f} us")


def _scrape() -> None:
    readers, totals = [WordReader(), WordReader()], Totals()
    for reader in readers:
        metrics = Metrics(WordTable(reader.descriptor))
        metrics.models = {f"model-{number}" for number in range(MODELS)}
        for model in metrics.models:
            metrics.call_ended(_record(model, stream=True), 250)
    text = b""

    def work() -> None:
        nonlocal text
        text = text_of(totals.read(readers), ())

    took = least_us(work, 3) / 1000
    click.echo(
        f"a scrape of 2 workers, {MODELS} models, {len(text.splitlines())} lines: {took:.1f} ms"
    )


def main() -> None:
    """Print the figures."""
    reader = WordReader()
    _count("words of shared memory", Metrics(WordTable(reader.descriptor)))
    own = PrivateTable()
    _count("words of its own", Metrics(own))
    metrics = Metrics(own)
    metrics.models = {f"model-{number}" for number in range(MODELS)}
    for model in metrics.models:
        metrics.call_ended(_record(model, stream=True), 250)
    _message(own)
    _scrape()


if __name__ == "__main__":
    main()
