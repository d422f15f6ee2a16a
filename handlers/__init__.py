"""The code that runs on the IOLoop: the relay's endpoints, the relay itself, telemetry."""
