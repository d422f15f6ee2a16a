"""The telemetry of a worker's calls: log lines, metrics, spans."""
