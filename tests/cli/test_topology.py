"""`batonbus topology`: an operator makes what the bus may not, from what is printed."""

import json
import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest
from typer.testing import CliRunner, Result

from batonbus.cli.commands import app
from batonbus.wire.connection import connect
from batonbus.wire.topology import inspect_topology

GUARDED = """
jetstream { store_dir: "STORE" }
authorization { users: [
  {user: admin, password: x}
  {user: bus, password: x, permissions: {publish: {deny: ["$JS.API.*.CREATE.>"]}}}
] }
"""
PARTS = {
    "BATONBUS_shop",
    "KV_batonbus_shop_agents",
    "KV_batonbus_shop_objects",
    "KV_batonbus_shop_checkpoints",
    "window-manager",
    "to-reviewer",
}


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["topology", "--fleet", "shop", *arguments])


async def made(url: str) -> dict[str, bool]:
    """The parts of the fleet that are there, and whether they are as needed."""
    async with connect(url, "operator") as connection:
        found = await inspect_topology(connection, "shop")
    return {name: it is not None and not it.differing for name, it in found.items()}


def test_the_printed_requests_make_all_that_a_fleet_needs(server_with: Any, tmp_path: Path) -> None:
    """Each line is one request of the `nats` program; here another one stands in for it."""
    answer = call("--role", "reviewer")
    assert answer.exit_code == 0
    words = [shlex.split(line, comments=True) for line in answer.stdout.splitlines()]
    requests = [it for it in words if it]
    assert [it[:2] for it in requests] == [["nats", "request"]] * len(PARTS)

    async def make(url: str) -> None:
        async with connect(url, "operator") as connection:
            for _, _, subject, body in requests:
                await connection.api(subject.removeprefix("$JS.API."), json.loads(body))
        assert await made(url) == dict.fromkeys(PARTS, True)

    with server_with(GUARDED) as address:
        anyio.run(make, f"nats://admin:x@{address}")


def test_it_is_a_script_for_a_shell() -> None:
    checked = subprocess.run(["sh", "-n"], input=call().stdout, text=True, capture_output=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_json_names_the_requests_and_the_rights(last_json: Callable[[str], Any]) -> None:
    answer = last_json(call("--role", "reviewer", "--json").stdout)
    assert [it["subject"] for it in answer["requests"]] == [
        "$JS.API.STREAM.CREATE.BATONBUS_shop",
        "$JS.API.STREAM.CREATE.KV_batonbus_shop_agents",
        "$JS.API.STREAM.CREATE.KV_batonbus_shop_objects",
        "$JS.API.STREAM.CREATE.KV_batonbus_shop_checkpoints",
        "$JS.API.CONSUMER.CREATE.BATONBUS_shop.window-manager",
        "$JS.API.CONSUMER.CREATE.BATONBUS_shop.to-reviewer",
    ]
    assert not any("STREAM.CREATE" in it for it in answer["rights"]["publish"])
    assert answer["applied"] is False


def test_a_name_that_cannot_stand_in_a_subject_is_an_error() -> None:
    answer = call("--role", "code reviewer")
    assert answer.exit_code == 1
    assert "'code reviewer' cannot stand in a subject" in answer.stderr


def test_apply_makes_it_for_who_may_and_then_the_bus_starts_without_that_right(
    server_with: Any, shell: Any, tmp_path: Path
) -> None:
    with server_with(GUARDED) as address:
        admin, bus = f"nats://admin:x@{address}", f"nats://bus:x@{address}"
        part = ("run", "window-manager", "--fleet", "shop", "--url", bus)
        refused = shell.call(*part, folder=tmp_path)
        assert refused.returncode == 1
        assert "may not publish to $JS.API.STREAM.CREATE.BATONBUS_shop" in refused.stderr
        assert "`batonbus topology`" in refused.stderr
        denied = call("--apply", "--url", bus)
        assert denied.exit_code == 1
        for _ in range(2):
            assert call("--role", "reviewer", "--apply", "--url", admin).exit_code == 0
        assert anyio.run(made, admin) == dict.fromkeys(PARTS, True)
        with shell.running(*part, folder=tmp_path) as manager:
            manager.hear("window_manager.started")


@pytest.mark.parametrize("arguments", [[], ["--apply"]])
def test_no_password_is_shown(server_with: Any, arguments: list[str]) -> None:
    with server_with(GUARDED) as address:
        answer = call(*arguments, "--url", f"nats://admin:x@{address}")
    assert answer.exit_code == 0
    assert "admin:x" not in answer.output


def test_the_user_of_an_agent_has_its_own_subjects_and_those_of_its_role(
    last_json: Callable[[str], Any],
) -> None:
    answer = last_json(call("--agent", "reviewer-1", "--role", "reviewer", "--json").stdout)
    assert (answer["fleet"], answer["agent"], answer["role"]) == ("shop", "reviewer-1", "reviewer")
    may_publish = answer["rights"]["publish"]
    assert {it.split(".")[3] for it in may_publish if ".handoff." in it} == {
        *("sent", "accepted", "refused", "failed", "settled", "cancelled")
    }
    assert [it.rpartition(".")[2] for it in may_publish if ".MSG.NEXT." in it] == [
        "to-reviewer-1",
        "to-reviewer",
    ]
    assert answer["rights"]["subscribe"] == [
        "shop.handoff.*.*.*.*.reviewer-1",
        "_INBOX_reviewer-1.>",
    ]


def test_an_agent_without_a_role_has_its_id_for_one() -> None:
    answer = call("--agent", "reviewer")
    assert answer.stdout == call("--agent", "reviewer", "--role", "reviewer").stdout
    assert answer.stdout.count("MSG.NEXT") == 1


@pytest.mark.parametrize("arguments", [["--apply"], ["--role", "reviewer", "--role", "tester"]])
def test_the_user_of_an_agent_is_printed_for_one_role_and_not_made(arguments: list[str]) -> None:
    assert call("--agent", "reviewer-1", *arguments).exit_code == 2


def test_no_two_agents_have_one_variable_for_their_passwords() -> None:
    ids = ["worker-code", "worker_code", "Worker-Code", "worker-Code"]
    variables = {re.findall(r"password: \$(\w+)", call("--agent", it).stdout)[0] for it in ids}
    assert len(variables) == len(ids)
    assert "NATS_WORKER_CODE_PASSWORD" in variables


def test_an_actor_of_the_bus_is_no_agent() -> None:
    answer = call("--agent", "operator")
    assert answer.exit_code == 2
    assert "an actor of the bus" in answer.output
