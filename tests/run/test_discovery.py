"""Where a process finds its bus."""

from pathlib import Path

import pytest

from batonbus import BusUnavailableError
from batonbus.run.discovery import address_file, find_fleet, find_url, url_user


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("BATONBUS_URL", "BATONBUS_FLEET"):
        monkeypatch.delenv(name, raising=False)


def write(folder: Path, address: str) -> None:
    address_file(folder).parent.mkdir()
    address_file(folder).write_text(address)


def test_a_running_bus_of_the_folder_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "nats://127.0.0.1:4333\n")
    assert find_url(tmp_path) == "nats://127.0.0.1:4333"
    monkeypatch.chdir(tmp_path)
    assert find_url() == "nats://127.0.0.1:4333"


def test_the_environment_goes_before_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(tmp_path, "nats://127.0.0.1:4333")
    monkeypatch.setenv("BATONBUS_URL", "nats://bus.example:4222")
    assert find_url(tmp_path) == "nats://bus.example:4222"
    monkeypatch.setenv("BATONBUS_URL", "")
    assert find_url(tmp_path) == "nats://127.0.0.1:4333"


def test_no_bus_is_an_error_that_says_how_to_start_one(tmp_path: Path) -> None:
    with pytest.raises(BusUnavailableError, match=r"no bus in this folder .*batonbus up"):
        find_url(tmp_path)
    write(tmp_path, "")
    with pytest.raises(BusUnavailableError, match="no bus in this folder"):
        find_url(tmp_path)


def test_the_fleet_is_the_default_unless_named(monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_fleet() == "default"
    monkeypatch.setenv("BATONBUS_FLEET", "")
    assert find_fleet() == "default"
    monkeypatch.setenv("BATONBUS_FLEET", "night-shift")
    assert find_fleet() == "night-shift"


@pytest.mark.parametrize(
    ("url", "user"),
    [
        ("nats://sender:secret@nats:4222", "sender"),
        ("nats://nats:4222", None),
        ("nats://token@nats:4222", None),
        ("nats:4222", None),
        ("nats://a.b:secret@nats:4222", None),
        ("", None),
    ],
)
def test_an_actor_is_the_user_that_the_address_names(url: str, user: str | None) -> None:
    assert url_user(url) == user
