"""The log line of a call."""

# The fields of a call's line that dashboards rely on.
FIELDS = (
    *("at", "level", "request_id", "family", "endpoint", "model", "group", "channel", "status"),
    *("error_code", "outcome", "stream", "attempts", "ttft_ms", "duration_ms", "tokens", "cost"),
    "client_ip",
)
