"""The table of metrics: name, kind, labels, buckets and meaning of each.

To add a metric, add a row here and count it in the code that knows the fact. The workers count in
integers (`per` of them are one unit of the metric) in memory that the supervisor reads (ADR 0021).
Standard library only. A test compares docs/metrics.md, conf/grafana.json and conf/alerts.yml with
this table.
"""

from collections.abc import Mapping
from typing import Literal, NamedTuple

OTHER = "_other"
"""The label of all models that are not configured, and of unknown paths."""

_S_BY_MS = (5, 10, 25, 50, 100, 250, 500, 1000, 2500, 5000, 10_000, 30_000, 60_000, 120_000,
            300_000, 600_000)  # fmt: skip
_S_BY_US = (100, 200, 500, 1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 200_000, 500_000,
            1_000_000, 10_000_000, 60_000_000, 600_000_000)  # fmt: skip
_LAG_US = (1000, 2000, 5000, 10_000, 20_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
           2_500_000, 5_000_000)  # fmt: skip


class Metric(NamedTuple):
    """One metric. `bounds` of a histogram are in the workers' integers. `join` tells how the gauges
    of several workers are combined."""

    name: str
    kind: Literal["counter", "gauge", "histogram", "block"]
    labels: tuple[str, ...]
    text: str
    per: int = 1
    bounds: tuple[int, ...] = ()
    join: Literal["sum", "max"] = "sum"

    @property
    def words(self) -> int:
        """Return the number of integers of one series. A histogram has its buckets, the last one
        without a bound, and the sum. For a block see CALLS_ENDED."""
        if self.kind == "block":
            return len(BLOCK_SUMS) + 2 * (len(_S_BY_MS) + 1) + len(_S_BY_US) + 1
        return len(self.bounds) + 2 if self.kind == "histogram" else 1


BLOCK_SUMS = (
    *("calls", "duration_ms", "own_us", "cost_nanos", "input_tokens", "output_tokens"),
    "first_byte_ms",
)
"""The beginning of a block. The buckets of durations, own overhead and the channel's first bytes
follow."""


def _counter(name: str, labels: str, text: str, per: int = 1) -> Metric:
    return Metric(f"sluice_{name}_total", "counter", tuple(labels.split()), text, per)


def _gauge(name: str, labels: str, text: str, join: Literal["sum", "max"] = "sum") -> Metric:
    return Metric(f"sluice_{name}", "gauge", tuple(labels.split()), text, join=join)


def _histogram(name: str, labels: str, text: str, bounds: tuple[int, ...], per: int) -> Metric:
    return Metric(f"sluice_{name}_seconds", "histogram", tuple(labels.split()), text, per, bounds)


REQUESTS = _counter(
    "requests",
    "family endpoint model group status error_code",
    "Calls that ended, and requests refused without a usage record.",
)
DURATION = _histogram(
    "request_duration", "family model", "From arrival to the end of a call.", _S_BY_MS, 1000
)
FIRST_TOKEN = _histogram(
    "time_to_first_token",
    "family model",
    "From arrival to the first byte of a streamed answer.",
    _S_BY_MS,
    1000,
)
PER_TOKEN = _histogram(
    "time_per_output_token",
    "family model",
    "Time of a streamed answer after its first byte, for each output token.",
    _S_BY_US,
    1_000_000,
)
OVERHEAD = _histogram(
    "overhead",
    "family",
    "Time that the gateway itself adds: from the whole request to its first attempt, and from the"
    " upstream's answer to the client.",
    _S_BY_US,
    1_000_000,
)
TOKENS = _counter("tokens", "model type", "Charged tokens.")
COST = _counter("cost", "currency model", "Charged money, in the account currency.", 10**9)
UNPRICED = _counter(
    "unpriced_uses",
    "model meter",
    "Uses that no price was configured for: of a meter, or of a feature such as tier.priority.",
)
STREAMS = _gauge("streams_in_flight", "", "Streaming calls in flight.")
CALLS = _gauge("calls_in_flight", "", "Calls in flight, streams among them.")
CONNECTIONS = _gauge("connections", "", "Open connections of clients.")
DISCONNECTS = _counter(
    "client_disconnects",
    "phase",
    "Clients that left: while sending the request, while waiting, or during the answer.",
)
UPSTREAM = _counter("upstream_requests", "channel outcome", "Attempts at channels.")
RETRIES = _counter(
    "upstream_retries", "reason", "Attempts after the first of a call, by what failed before."
)
UPSTREAM_FIRST_BYTE = _histogram(
    "upstream_first_byte",
    "channel",
    "From an attempt at a channel to the first byte of the answer that was accepted; answers that"
    " are not streams count when they have been read.",
    _S_BY_MS,
    1000,
)
CHANNEL_UP = _gauge(
    "channel_up",
    "channel model",
    "1 when at least one worker may send calls of the model to the channel.",
    "max",
)
CIRCUIT = _gauge(
    "channel_circuit_state",
    "channel model",
    "Circuit breaker: 0 closed, 1 half-open, 2 open; the worst of all workers and upstream keys.",
    "max",
)
KEYS_SUSPENDED = _gauge(
    "upstream_keys_suspended",
    "channel",
    "Upstream keys of a channel that are suspended because their vendor refuses them.",
    "max",
)
RATE_LIMITED = _counter(
    "rate_limited",
    "limit",
    "Refusals by limits of key, user and group and of the memory for bodies; channels passed over"
    " at their own limits.",
)
JOURNAL_BYTES = _gauge("journal_bytes", "", "Bytes of the journal that are not in the store yet.")
QUEUE_DEPTH = _gauge("usage_queue_depth", "", "Usage records that are not in the store yet.")
WRITE_ERRORS = _counter(
    "usage_write_errors", "code", "Failed rounds of the writer, by the database's error code."
)
STORE_RETRIES = _counter(
    "store_retries", "code", "Transactions that were repeated, by the database's error code."
)
STORE_HOST_INFO = _gauge(
    "store_host_info",
    "host state",
    "1 for the state of each of several hosts of the store, as a worker sees it: writing, primary,"
    " away (no answer, no majority or read-only).",
    "max",
)
LOOP_LAG = _histogram(
    "loop_lag", "", "How late the event loop of a worker runs a timer.", _LAG_US, 1_000_000
)
LOG_DROPPED = _counter("log_lines_dropped", "", "Log lines that could not be written in time.")
SPANS_DROPPED = _counter(
    "spans_dropped", "", "Spans that were not exported: the collector was too slow or unreachable."
)
SERIES_DROPPED = _counter(
    "metric_series_dropped", "", "Series of metrics that found no room; 0 unless a bound is hit."
)
RESTARTS = _counter("worker_restarts", "", "Workers that were replaced because they died.")
RELOAD_OK = _gauge(
    "config_reload_success", "", "1 when the last reading of the configuration was accepted."
)
RELOAD_AT = _gauge(
    "config_reload_timestamp_seconds", "", "When the configuration in force was read."
)
DRAINING = _gauge("draining", "", "1 while the node drains or was taken out of rotation.")
WORKERS_READY = _gauge("workers_ready", "", "Workers that take calls.")
HUB_UP = _gauge("hub_up", "", "1 while the process of the Hub runs and its loop turns.")
RECORDS_PARKED = _gauge(
    "records_parked",
    "",
    "Lines and records of the journal that the store refused and that are kept beside it.",
)
BACKUP_AGE = _gauge(
    "backup_age_seconds", "", "Since the newest backup was finished, on whatever machine."
)
BOOKS_VERIFY_AGE = _gauge(
    "books_verify_age_seconds", "", "Since the newest `books verify` that found the books right."
)
UPKEEP_AT = _gauge(
    "upkeep_timestamp_seconds", "", "When the last upkeep of the store ended, on whatever node."
)
UPKEEP_OK = _gauge("upkeep_success", "", "1 when the last upkeep of the store did all it should.")
CLOCK_LEAD = _gauge(
    "clock_lead_seconds",
    "",
    "How far the node's clock is ahead of the database's; below 0: behind. 0 with SQLite.",
)
LIMITS_BACKEND_UP = _gauge(
    "limits_backend_up", "", "1 while Redis counts limits for all nodes; none without limits.url."
)
BUILD_INFO = _gauge(
    "build_info", "version python revision", "1, with version and revision as labels."
)

SIGN_INS = _counter(
    "hub_sign_ins",
    "result",
    "Sign-ins at the Hub: ok, wrong (name or password), wrong_code, locked (too many tries), busy"
    " (too many hashes wait), not_linked and provider (of OpenID).",
)

_OF_WORKERS = (
    *(REQUESTS, DURATION, FIRST_TOKEN, PER_TOKEN, OVERHEAD, TOKENS, COST, UNPRICED),
    *(STREAMS, CALLS, CONNECTIONS, DISCONNECTS, UPSTREAM, RETRIES, UPSTREAM_FIRST_BYTE),
    *(CHANNEL_UP, CIRCUIT, KEYS_SUSPENDED),
    *(
        RATE_LIMITED,
        JOURNAL_BYTES,
        QUEUE_DEPTH,
        WRITE_ERRORS,
        STORE_RETRIES,
        STORE_HOST_INFO,
        LOOP_LAG,
    ),
    *(LOG_DROPPED, SPANS_DROPPED, SERIES_DROPPED),
)
_OF_SUPERVISOR = (
    *(RESTARTS, WORKERS_READY, RELOAD_OK, RELOAD_AT, DRAINING, HUB_UP, RECORDS_PARKED),
    *(BACKUP_AGE, BOOKS_VERIFY_AGE, UPKEEP_AT, UPKEEP_OK, CLOCK_LEAD),
    *(LIMITS_BACKEND_UP, BUILD_INFO),
)
CALLS_ENDED = Metric(
    "calls_ended",
    "block",
    (
        "family",
        "endpoint",
        "model",
        "group",
        "status",
        "error_code",
        "channel",
        "result",
        "currency",
    ),
    "All that is counted of one kind of calls in one place, which costs a call the least. A scrape"
    " takes it apart into the metrics above. No channel: no attempt was made.",
)
METRICS: Mapping[str, Metric] = {
    metric.name: metric for metric in (*_OF_WORKERS, *_OF_SUPERVISOR, SIGN_INS)
}
"""All metrics by name, in the order in which they are printed."""
COUNTED: Mapping[str, Metric] = {**METRICS, CALLS_ENDED.name: CALLS_ENDED}
"""The series that a worker may count: the metrics, and the block, which is not printed as it is."""
