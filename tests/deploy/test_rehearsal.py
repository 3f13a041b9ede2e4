"""The services of `docker-compose.yml` as plain processes, on the deployed server."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from batonbus.cli.topology import user_block
from batonbus.wire.blueprint import agent_rights
from batonbus_schemas import AgentCard

ROOT = Path(__file__).parents[2]
FLEET = "default"
STOP_TIMEOUT = 35
SERVICES: dict[str, dict[str, Any]] = {
    name: service
    for name, service in yaml.safe_load((ROOT / "docker-compose.yml").read_text())[
        "services"
    ].items()
    if service["image"] == "batonbus"
}
AGENTS = {name: it["command"][1] for name, it in SERVICES.items() if it["command"][0] == "agent"}


def card_of(name: str) -> AgentCard:
    module, attribute = AGENTS[name].split(":")
    card: AgentCard = getattr(import_module(module), attribute).card
    return card


def user_of(name: str) -> str:
    return str(SERVICES[name]["environment"]["BATONBUS_URL"]).split("//")[1].split(":")[0]


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_may_do_what_it_needs_and_no_more(name: str) -> None:
    """As `batonbus topology` prints it for another one."""
    card = card_of(name)
    block = "\n".join(user_block(card.id, agent_rights(FLEET, card.id, card.role)))
    assert f"\n{block}\n" in (ROOT / "deploy/nats-server.conf").read_text()
    assert user_of(name) == card.id


def start(name: str, server: Any, log: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "batonbus", *SERVICES[name]["command"]]
    environment = {**os.environ, "BATONBUS_URL": server.url(user_of(name))}
    with log.open("w") as file:
        return subprocess.Popen(command, env=environment, stderr=file)


@pytest.fixture
def processes(server: Any, tmp_path: Path) -> Iterator[dict[str, "subprocess.Popen[bytes]"]]:
    with ExitStack() as stack:
        started = {name: start(name, server, tmp_path / name) for name in SERVICES}
        for process in started.values():
            stack.callback(process.wait, timeout=STOP_TIMEOUT)
            stack.callback(process.kill)
        yield started


@pytest.mark.faults
def test_the_whole_fleet_works_and_stops_as_containers_do(
    server: Any, processes: dict[str, "subprocess.Popen[bytes]"], tmp_path: Path
) -> None:
    send = [sys.executable, "-m", "batonbus", "send", "--wait", "--timeout", "30"]
    contract = import_module("batonbus_agents.example").__path__[0] + "/contract.json"
    sent = subprocess.run(
        [*send, "--url", server.url("operator"), contract],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert sent.returncode == 0, sent.stdout + sent.stderr
    for process in processes.values():
        process.send_signal(signal.SIGTERM)
    for name, process in processes.items():
        assert process.wait(STOP_TIMEOUT) == 0, (tmp_path / name).read_text()
    assert server.refusals() == []
