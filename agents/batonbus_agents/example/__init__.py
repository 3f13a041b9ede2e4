"""A small fleet to look at and to copy from: five roles that hand one piece of work along.

They say what an agent would say instead of asking a model, and take a moment for it. Run one with
`batonbus agent batonbus_agents.example:reviewer`.
"""

from batonbus_agents.example.fleet import closer, coder, relief, researcher, reviewer, tester

__all__ = ["closer", "coder", "relief", "researcher", "reviewer", "tester"]
