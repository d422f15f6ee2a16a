"""What a worker tells of its calls: log lines, metrics, spans."""
