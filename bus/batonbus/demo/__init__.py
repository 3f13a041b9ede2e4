"""The demo: a real bus with real processes, one of them killed, and what became of the work."""
