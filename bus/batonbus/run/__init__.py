"""Loops that read, decide (by the rules), and do."""
