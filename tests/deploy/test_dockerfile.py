"""`deploy/Dockerfile` without Docker: its steps, carried out in a folder of their own."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BUILD, FINAL = re.split(r"^FROM ", (ROOT / "deploy/Dockerfile").read_text(), flags=re.M)[1:]


def instructions(stage: str, name: str) -> list[str]:
    return re.findall(rf"^{name} (.+)$", stage, flags=re.M)


def run(command: str, cwd: Path) -> None:
    done = subprocess.run(["sh", "-c", command], cwd=cwd, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"


def copy(name: str, target: Path) -> None:
    if (ROOT / name).is_dir():
        shutil.copytree(ROOT / name, target, ignore=shutil.ignore_patterns("__pycache__"))
    else:
        shutil.copy(ROOT / name, target)


def carried_out_here(step: str, folder: Path) -> str:
    """The step with this Python, and with its absolute paths below a folder."""
    step = re.sub(r"^pip ", "python -m pip ", step)
    step = re.sub(r"^python ", f"{sys.executable} ", step)
    return step.replace("/dist", f"{folder}/dist").replace("/opt/", f"{folder}/opt/")


@pytest.mark.faults
@pytest.mark.timeout(300)  # it downloads what the image needs
def test_the_steps_of_the_image_install_the_project(tmp_path: Path) -> None:
    """What is copied is enough to build a wheel, and the wheel with its extra runs."""
    source = tmp_path / "src"
    source.mkdir()
    for line in instructions(BUILD, "COPY"):
        *names, target = line.split()
        for name in names:
            copy(name, source / target)
    for step in instructions(BUILD, "RUN"):
        run(carried_out_here(step, tmp_path), source)
    run("opt/batonbus/bin/batonbus --help", tmp_path)
    for module in ("batonbus_agents", "opentelemetry.exporter.otlp.proto.http"):
        run(f"opt/batonbus/bin/python -c 'import {module}'", tmp_path)


def test_the_final_image_installs_nothing_and_has_no_build_tools() -> None:
    assert instructions(FINAL, "COPY") == ["--from=build /opt/batonbus /opt/batonbus"]
    assert re.search(r"\b(pip|apt|apt-get)\b", FINAL) is None


def test_both_stages_have_the_same_python() -> None:
    assert BUILD.split()[0] == FINAL.split()[0]


def test_it_runs_the_command_as_a_user_without_rights() -> None:
    assert instructions(FINAL, "ENTRYPOINT") == ['["batonbus"]']
    (user,) = instructions(FINAL, "USER")
    assert f"useradd --system --uid 10001 --create-home {user}" in instructions(FINAL, "RUN")
