"""The wire: the only place that knows NATS."""
