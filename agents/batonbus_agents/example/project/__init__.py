"""A small real project to run the reference fleet on: a failing test suite, and a work of six tasks
that mends it, with the patches that its builders made."""

from batonbus_agents.example.project.recording import SCRIPT, SLOW_TASK, WORK, make_project

__all__ = ["SCRIPT", "SLOW_TASK", "WORK", "make_project"]
