"""The six roles by name."""

from collections.abc import Callable, Mapping

from batonbus import Agent
from batonbus_agents.builder import make_builder
from batonbus_agents.checkpoints import keep_checkpoints
from batonbus_agents.committer import make_committer
from batonbus_agents.planner import make_planner
from batonbus_agents.routes import Role
from batonbus_agents.scheduler import make_scheduler
from batonbus_agents.specifier import make_specifier
from batonbus_agents.verifier import make_verifier
from batonbus_agents.workshop import Workshop

MAKERS: Mapping[Role, Callable[..., Agent]] = {
    "specifier": make_specifier,
    "planner": make_planner,
    "scheduler": make_scheduler,
    "builder": make_builder,
    "verifier": make_verifier,
    "committer": make_committer,
}


def make_agent(role: Role, workshop: Workshop, *, id: str | None = None) -> Agent:
    """The agent of a role in a workshop; `id` None is a random one. Its Checkpoints are kept in the
    execution log of each work."""
    agent = MAKERS[role](workshop, id=id)
    keep_checkpoints(agent, workshop, role)
    return agent
