"""Where the bus is: `BATONBUS_URL`, else what `batonbus up` wrote into the current folder."""

import os
from pathlib import Path
from urllib.parse import urlsplit

from batonbus.rules.errors import BusUnavailableError
from batonbus.run.bus import DEFAULT_FLEET
from batonbus.wire.subjects import is_token

STATE_FOLDER = ".batonbus"

MONITORING_VARIABLE = "BATONBUS_MONITORING_URL"
"""Names the http address of the server's own monitoring."""


def address_file(folder: Path) -> Path:
    """The file in which `batonbus up` keeps its address."""
    return folder / STATE_FOLDER / "address"


def store_folder(folder: Path) -> Path:
    """Where the server of `batonbus up` keeps all that was handed over."""
    return folder / STATE_FOLDER / "store"


def find_url(folder: Path | None = None) -> str:
    """The bus's address, which may hold credentials. Raises BusUnavailableError."""
    if url := os.environ.get("BATONBUS_URL"):
        return url
    if url := local_url(folder or Path.cwd()):
        return url
    raise BusUnavailableError(
        f"no bus in this folder ({STATE_FOLDER}/address is missing): "
        "start one here with `batonbus up`, or set BATONBUS_URL"
    )


def local_url(folder: Path) -> str | None:
    """The address of the bus that `batonbus up` runs in this folder, if one does."""
    try:
        return address_file(folder).read_text().strip()
    except FileNotFoundError:
        return None


def url_user(url: str) -> str | None:
    """The user that an address logs in as, where that is a name an actor can have. What stands
    there without a password is a token: a secret, and no name."""
    parts = urlsplit(url) if "://" in url else None
    user = parts.username if parts and parts.password is not None else None
    return user if user and is_token(user) else None


def find_fleet() -> str:
    """The fleet's name: `BATONBUS_FLEET`, else the default."""
    return os.environ.get("BATONBUS_FLEET") or DEFAULT_FLEET
