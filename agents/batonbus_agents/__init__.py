"""The reference fleet: agents that plan, build, verify and commit a work, task by task."""
