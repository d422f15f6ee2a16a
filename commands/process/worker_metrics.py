"""The metrics of a worker other than those of calls: gauges, loop lag, the store's retries; spans.

Connects the parts of a worker to its metrics; `publish` is called once a second.
"""

import importlib
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping

from peewee import Database

from commands.process.metrics import ABSENT
from conf import metrics as names
from conf.metrics import Metric
from conf.version import VERSION
from handlers.http.server import Server
from handlers.logs import LogThread
from handlers.relay.pipeline import Relay
from handlers.telemetry.channel_gauges import ChannelGauges, ChannelHealth, Pair
from handlers.telemetry.metrics import LoopLag, Metrics
from handlers.telemetry.spans import SpanThread
from store.calls.journal import Journal
from store.calls.writer import Writer
from store.catalog.catalog import Snapshot
from store.db import cluster
from store.db.database import repeated
from store.values.usage_record import UsageRecord

log = logging.getLogger("sluice.worker")

_GAUGES = (
    *(names.STREAMS, names.CALLS, names.CONNECTIONS),
    *(names.JOURNAL_BYTES, names.QUEUE_DEPTH),
)
_EXPORTER = "handlers.telemetry.otlp"


def _spans(endpoint: str, node: str) -> SpanThread | None:
    """Return the exporter of spans, or None if its packages are not installed."""
    try:
        # Imported by name: workers that do not trace load nothing of OpenTelemetry.
        otlp = importlib.import_module(_EXPORTER)
    except ImportError as error:
        remedy = "pip install -r requirements-otel.txt"
        log.error("calls are not traced, a package is missing (%s): %s", error, remedy)
        return None
    return SpanThread(otlp.OtlpExporter(endpoint, VERSION, node))


class WorkerMetrics:
    """The metrics and spans of a worker other than the metrics of its calls."""

    def __init__(
        self, metrics: Metrics, relay: Relay, journal: Journal, beat: Callable[[], None]
    ) -> None:
        self._metrics = metrics
        self._relay = relay
        self._journal = journal
        self._channels = ChannelGauges(relay.health, self._show, self._hide)
        self._suspended: Counter[str] = Counter()  # suspended upstream keys, by the channel's name
        self.spans: SpanThread | None = None
        self._beat = beat
        self._hosts: Mapping[str, str] = {}  # states by name, as last published
        self._lag = LoopLag(self._turned)

    def start(self, endpoint: str, node: str) -> None:
        """Start on the loop. With an endpoint, calls become spans."""
        for gauge in _GAUGES:  # so that they exist from the first scrape on
            self._metrics.set(gauge, value=0)
        self._lag.start()
        if endpoint:
            self.spans = self._relay.telemetry.spans = _spans(endpoint, node)

    def stop(self) -> None:
        """Stop. Blocks briefly while spans are sent."""
        self._lag.stop()
        if self.spans is not None:
            self.spans.stop()

    def take_snapshot(self, snapshot: Snapshot) -> None:
        self._metrics.models = snapshot.models
        self._channels.take_snapshot(snapshot, time.monotonic())
        names_by_id = {channel.id: channel.name for channel in snapshot.channels}
        suspended = Counter(
            names_by_id[channel_id]
            for channel_id, _ in snapshot.suspended_keys
            if channel_id in names_by_id
        )
        for name in suspended.keys() | self._suspended.keys():
            self._metrics.set(names.KEYS_SUSPENDED, name, value=suspended[name])
        self._suspended = suspended

    def _turned(self, late_us: int) -> None:
        self._beat()
        self._metrics.observe(names.LOOP_LAG, late_us)

    def lost(self, records: list[UsageRecord]) -> None:
        """Count calls that a dead process had not finished, found in its journal."""
        for record in records:
            self._metrics.call_ended(record, 0)

    def publish(self, server: Server, writer: Writer, db: Database, logs: LogThread) -> None:
        live, metrics = self._relay.live, self._metrics
        metrics.set(names.STREAMS, value=live.streams)
        metrics.set(names.CALLS, value=live.calls)
        metrics.set(names.CONNECTIONS, value=server.connections)
        metrics.set(names.JOURNAL_BYTES, value=self._journal.backlog_bytes)
        metrics.set(names.QUEUE_DEPTH, value=writer.waiting_records)
        metrics.set(names.LOG_DROPPED, value=logs.dropped + self._relay.telemetry.dropped)
        metrics.set(names.SERIES_DROPPED, value=metrics.dropped)
        if self.spans is not None:
            metrics.set(names.SPANS_DROPPED, value=self.spans.dropped)
        self._copy(names.STORE_RETRIES, repeated(db))
        self._show_hosts(cluster.watched(db))
        self._copy(names.WRITE_ERRORS, dict(writer.failures))
        self._channels.update(time.monotonic())

    def _show_hosts(self, states: Mapping[str, str]) -> None:
        for host, state in states.items():
            if (before := self._hosts.get(host, state)) != state:
                self._metrics.set(names.STORE_HOST_INFO, host, before, value=0)
            self._metrics.set(names.STORE_HOST_INFO, host, state, value=1)
        self._hosts = states

    def _copy(self, metric: Metric, counts: Mapping[str, int]) -> None:
        for code, count in counts.items():
            self._metrics.set(metric, code, value=count)

    def _show(self, pair: Pair, state: ChannelHealth) -> None:
        self._metrics.set(names.CHANNEL_UP, *pair, value=int(state.up))
        self._metrics.set(names.CIRCUIT, *pair, value=state.circuit)

    def _hide(self, pair: Pair) -> None:
        self._metrics.set(names.CHANNEL_UP, *pair, value=ABSENT)
        self._metrics.set(names.CIRCUIT, *pair, value=ABSENT)
