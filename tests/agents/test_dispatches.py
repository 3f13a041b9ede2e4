"""What a stage is asked: everything that a dispatch should contain, and nothing that is pasted."""

from uuid import uuid4

import pytest

from batonbus.rules.budget import fit
from batonbus.rules.pastes import find_copies, find_pastes, passages_of
from batonbus.rules.policy import Policy
from batonbus_agents.dispatches import stage_dispatch
from batonbus_agents.routes import Role
from batonbus_agents.works.files import FileEntry
from batonbus_agents.works.plan import Plan
from batonbus_agents.works.plan_tasks import PlanTask
from batonbus_agents.works.task import TaskSpec
from batonbus_agents.workshop import Task
from batonbus_schemas import Envelope

STAGES: tuple[Role, ...] = ("builder", "verifier", "committer")


def task(name: str = "TASK-02", files: int = 60) -> Task:
    declared = tuple(FileEntry(f"src/part/module_{it:02}.py", "CREATE") for it in range(files))
    planned = PlanTask(id=name, title="Parts", depends_on=("TASK-01",), files=declared)
    plan = Plan(work="WORK-01", title="Parts", mode="full", tasks=(planned,))
    return Task(plan=plan, planned=planned, spec=TaskSpec(id=name, title="Parts"))


def asked(name: str, role: Role) -> Envelope:
    body = stage_dispatch(task(name), role)
    return Envelope(id=uuid4(), sender="scheduler-1", to=role, work="WORK-01", task=name, body=body)


@pytest.mark.parametrize("role", STAGES)
def test_a_stage_is_asked_all_that_a_dispatch_should_contain(role: Role) -> None:
    body = stage_dispatch(task(), role)
    for part in (
        body.brief,
        body.permission_boundary,
        body.expected_evidence,
        body.attention,
        body.context_pack,
        body.skills,
        body.task_file,
        body.plan_file,
        body.refs,
    ):
        assert part


@pytest.mark.parametrize("role", STAGES)
def test_a_task_of_many_files_is_asked_inside_the_budget_and_pastes_nothing(role: Role) -> None:
    sent = asked("TASK-02", role)
    assert fit(sent, (), Policy().limits_of_role(role).budget).steps == ()
    assert find_pastes(sent, passages=passages_of(asked("TASK-01", role))) == []
    listed = ", ".join(f"src/part/module_{it:02}.py" for it in range(60))
    assert find_copies(sent.body, {"works/WORK-01/PLAN.md": f"- **Files**: {listed}"}) == []
