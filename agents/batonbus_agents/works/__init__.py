"""The works files of the reference fleet: pure reading and writing, and one folder on disk."""
