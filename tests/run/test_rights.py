"""The rights that `batonbus topology` names are all that the bus's own user needs: a handoff goes
its whole way and is let go of, and the doctor finds nothing wrong."""

import json
from pathlib import Path
from typing import Any

import anyio
import pytest

from batonbus import Agent, Bus, Context
from batonbus.run.core import open_operator
from batonbus.run.doctor import examine
from batonbus.run.retention import retain
from batonbus.testing import FAST, run_receipt_keeper, run_window_manager
from batonbus.wire.blueprint import blueprint, bus_rights
from batonbus.wire.connection import connect
from batonbus_schemas import Dispatch, TaskResult

pytestmark = pytest.mark.anyio

FLEET = "guarded"
RIGHTS = bus_rights(FLEET)
CONFIGURATION = f"""
jetstream {{ store_dir: "STORE" }}
authorization {{ users: [
  {{user: admin, password: x}}
  {{user: bus, password: x, permissions: {{
    publish: {json.dumps(RIGHTS.publish)}
    subscribe: {json.dumps(RIGHTS.subscribe)}
    allow_responses: true
  }}}}
] }}
"""


async def test_a_bus_that_may_make_no_stream_does_its_work(
    server_with: Any, tmp_path: Path
) -> None:
    reviewer = Agent("reviewer", id="reviewer-1")

    @reviewer.handles
    async def review(task: Dispatch, ctx: Context) -> TaskResult:
        return TaskResult.passed(f"Read {task.brief}, {len(task.ref_cache['guide'])} characters")

    with server_with(CONFIGURATION) as address:
        admin, bus_user = f"nats://admin:x@{address}", f"nats://bus:x@{address}"
        async with connect(admin, "operator") as connection:
            for making in blueprint(FLEET, ["reviewer", "reviewer-1"], FAST):
                await connection.api(making.verb, making.body)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run_window_manager, bus_user, FLEET)
            tasks.start_soon(run_receipt_keeper, bus_user, FLEET)
            async with Bus(admin, actor="source", fleet=FLEET) as bus:
                tasks.start_soon(bus.run, reviewer)
                with anyio.fail_after(10):
                    guide = {"guide": "A long guide.\n" * 1000}
                    body = Dispatch(brief="this", ref_cache=guide)
                    result = await (await bus.send("reviewer", body)).result()
            findings = await examine(bus_user, FLEET)
            async with open_operator(bus_user, fleet=FLEET) as core:
                retained = await retain(core, tmp_path / "exports", older_than=-1)
            tasks.cancel_scope.cancel()
    assert result.summary == "Read this, 14000 characters"
    assert {it.name for it in findings if it.status != "ok"} == {"disk"}
    assert retained.removed.handoffs == 1
    assert "Violation" not in (tmp_path / "server.log").read_text()
