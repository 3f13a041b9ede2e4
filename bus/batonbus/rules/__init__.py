"""What decides: pure functions and tables, without I/O, clock, randomness or async."""
