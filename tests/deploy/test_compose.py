"""`docker-compose.yml` without Docker: its schema, and what it must agree with."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "docker-compose.yml"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
BUS = {"window-manager", "receipt-keeper"}
AGENTS = set(SERVICES) - BUS - {"nats", "traces"}
CONFIGURATION = (ROOT / "deploy/nats-server.conf").read_text()
USERS = set(re.findall(r'^ +user: "(\S+)"$', CONFIGURATION, re.M))


def user_of(name: str) -> str:
    """Who a service is to the server."""
    return str(SERVICES[name]["environment"]["BATONBUS_URL"]).split("//")[1].split(":")[0]


def secret_of(user: str) -> str:
    return f"NATS_{user.upper().replace('-', '_')}_PASSWORD"


def check_schema(file: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.compose-spec"]
    return subprocess.run([*command, str(file)], capture_output=True, text=True, timeout=60)


def test_it_is_a_compose_file() -> None:
    checked = check_schema(COMPOSE)
    assert checked.returncode == 0, checked.stdout


def test_a_misspelt_key_would_be_found(tmp_path: Path) -> None:
    broken = tmp_path / "docker-compose.yml"
    broken.write_text(COMPOSE.read_text().replace("read_only:", "readonly:"))
    checked = check_schema(broken)
    assert checked.returncode == 1
    assert "readonly" in checked.stdout


def test_nothing_is_published_beyond_this_machine() -> None:
    published = [port for service in SERVICES.values() for port in service.get("ports", [])]
    assert published
    assert [port for port in published if not port.startswith("127.0.0.1:")] == []


@pytest.mark.parametrize("name", SERVICES)
def test_a_container_has_no_more_rights_than_it_needs(name: str) -> None:
    service = SERVICES[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["restart"] == "unless-stopped"


def test_every_agent_is_a_user_of_its_own() -> None:
    assert sorted(user_of(name) for name in AGENTS) == sorted(USERS - {"sender"})
    assert {user_of(name) for name in BUS} == {"operator"}


@pytest.mark.parametrize("name", sorted(AGENTS | BUS))
def test_a_process_connects_with_its_secret_once_the_server_is_ready(name: str) -> None:
    service, user = SERVICES[name], user_of(name)
    url = f"nats://{user}:${{{secret_of(user)}:?}}@nats:4222"
    assert service["environment"]["BATONBUS_URL"] == url
    assert service["environment"]["OTEL_SERVICE_NAME"] == name
    assert service["depends_on"] == {"nats": {"condition": "service_healthy"}}


@pytest.mark.parametrize("name", sorted(AGENTS | BUS))
def test_a_container_runs_a_command_that_there_is(name: str) -> None:
    command = [sys.executable, "-m", "batonbus", *SERVICES[name]["command"], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_bus_is_healthy_while_its_doctor_says_so() -> None:
    """Agents have no such check: their passwords open nothing that the doctor looks at."""
    checked = {name for name, it in SERVICES.items() if "healthcheck" in it} - {"nats"}
    assert checked == BUS
    for name in BUS:
        command, *arguments = SERVICES[name]["healthcheck"]["test"]
        assert (command, arguments) == ("CMD", ["batonbus", "doctor"])


def test_every_secret_is_required_and_explained() -> None:
    wanted = {secret_of(user) for user in USERS | {"operator"}}
    required = set(re.findall(r"password: \$(\w+)", CONFIGURATION))
    explained = set(re.findall(r"^(\w+)=$", (ROOT / "deploy/.env.example").read_text(), re.M))
    assert required == explained == wanted


def test_the_secrets_are_never_committed() -> None:
    assert ".env" in (ROOT / "deploy/.gitignore").read_text().splitlines()


def test_the_server_gets_every_file_that_its_configuration_includes() -> None:
    """By their folder: a file that is mounted by itself stays as it was when it is replaced."""
    assert "./deploy:/etc/nats:ro" in SERVICES["nats"]["volumes"]
    assert SERVICES["nats"]["command"][-1] == "/etc/nats/nats-server.conf"
    assert re.findall(r"^include (\S+)", CONFIGURATION, re.M) == [".env"]


def test_a_process_may_write_below_its_current_folder() -> None:
    """An agent lays down there what its text leaves out, though the image is read-only."""
    dockerfile = (ROOT / "deploy/Dockerfile").read_text()
    (folder,) = re.findall(r"^WORKDIR (/home\S+)$", dockerfile, re.M)
    (user,) = re.findall(r"--uid (\d+)", dockerfile)
    for name in sorted(AGENTS | BUS):
        # Without its owner it would be root's, with the mode of the image's folder.
        assert f"{folder}:uid={user},mode=0700" in SERVICES[name]["tmpfs"]


def test_spans_are_taken_in_where_the_services_send_them() -> None:
    assert "127.0.0.1:4318:4318" in SERVICES["traces"]["ports"]
    for name in sorted(AGENTS | BUS):
        assert SERVICES[name]["environment"]["OTEL_EXPORTER_OTLP_ENDPOINT"] == "http://traces:4318"
