"""A cluster of three real servers on 127.0.0.1, by the configuration in `deploy/`."""

import os
import shutil
import signal
import socket
import time
import urllib.request
from asyncio.subprocess import Process
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import anyio.to_thread
import msgspec
import nats

from batonbus.wire.processes import start_child, stop_child
from batonbus.wire.server import find_server

DEPLOY = Path(__file__).parents[2] / "deploy"
USERS = ("operator", "sender", "researcher", "worker-code", "reviewer", "tester", "closer")
ROUTE = "route:route-password@"


class Node:
    """One server, which may be killed, stopped and started again on its store and ports."""

    def __init__(self, name: str, folder: Path, ports: Sequence[int]) -> None:
        self.name = name
        self._folder = folder
        self._port, self._monitoring, route_port = ports
        self.route = f"nats://{ROUTE}127.0.0.1:{route_port}"
        self._process: Process | None = None

    def url(self, user: str) -> str:
        return f"nats://{user}:{user}-password@127.0.0.1:{self._port}"

    async def start(self, environment: dict[str, str]) -> None:
        command = [find_server(), "-c", str(self._folder / "cluster.conf"), "--cluster", self.route]
        listen = ["-a", "127.0.0.1", "-p", str(self._port), "-m", str(self._monitoring)]
        variables = {"NATS_NODE": self.name, "NATS_STORE_DIR": str(self._folder / "store")}
        self._configure()
        with (self._folder / "log").open("ab") as log:
            self._process = await start_child(
                [*command, *listen], env=environment | variables, stderr=log
            )

    def _configure(self) -> None:
        self._folder.mkdir(exist_ok=True)
        for name in ("cluster.conf", "nats-server.conf"):
            shutil.copy(DEPLOY / name, self._folder / name)
        passwords = {f"NATS_{it.upper().replace('-', '_')}_PASSWORD": it for it in USERS}
        lines = [f"{name}={user}-password\n" for name, user in passwords.items()]
        (self._folder / ".env").write_text("".join(lines))

    async def stop(self) -> None:
        if self._process is not None:
            await stop_child(self._process, grace=5)
            self._process = None

    def send_signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    async def is_healthy(self) -> bool:
        """Whether it has caught up with all that it keeps, as its monitoring says."""
        return await anyio.to_thread.run_sync(self._ask_health)

    def _ask_health(self) -> bool:
        try:
            address = f"http://127.0.0.1:{self._monitoring}/healthz"
            with urllib.request.urlopen(address, timeout=1) as answer:
                return answer.status == 200
        except OSError:
            return False


class Cluster:
    """Three nodes."""

    def __init__(self, folder: Path) -> None:
        ports = free_ports(9)
        self.nodes = [
            Node(f"nats-{it}", folder / f"nats-{it}", ports[it * 3 - 3 : it * 3])
            for it in (1, 2, 3)
        ]
        self._environment = {
            **os.environ,
            "NATS_ROUTE_PASSWORD": "route-password",
            **{f"NATS_ROUTE_{it}": node.route for it, node in enumerate(self.nodes, start=1)},
        }

    def url(self, user: str) -> str:
        """All three addresses."""
        return ",".join(it.url(user) for it in self.nodes)

    async def start(self, *nodes: Node) -> None:
        for node in nodes or self.nodes:
            await node.start(self._environment)

    async def stop(self) -> None:
        for node in self.nodes:
            await node.stop()

    async def heal(self) -> None:
        """Until every node has caught up."""

        async def healthy() -> bool:
            return all([await it.is_healthy() for it in self.nodes])

        await wait_until(healthy, "the nodes are not healthy", limit=30)

    async def kill(self, node: Node) -> None:
        """End a node with -9, and return when it is gone."""
        node.send_signal(signal.SIGKILL)
        await node.stop()

    async def ask(self, verb: str, body: object = None) -> Any:
        """An answer of the JetStream API."""
        client = await nats.connect(self.url("operator").split(","), connect_timeout=1)
        try:
            data = b"" if body is None else msgspec.json.encode(body)
            answer = await client.request(f"$JS.API.{verb}", data, timeout=5)
            return msgspec.json.decode(answer.data)
        finally:
            await client.close()

    async def leader(self, stream: str) -> Node:
        """The node that leads a stream."""
        name = (await self.ask(f"STREAM.INFO.{stream}"))["cluster"].get("leader")
        return next(it for it in self.nodes if it.name == name)

    async def make_leader(self, node: Node, stream: str) -> None:
        """Until this node leads the stream."""

        async def leads() -> bool:
            info = await self.ask(f"STREAM.INFO.{stream}")
            if info.get("cluster", {}).get("leader") == node.name:
                return True
            body = {"placement": {"preferred": node.name}}
            await self.ask(f"STREAM.LEADER.STEPDOWN.{stream}", body)
            return False

        await wait_until(leads, f"{node.name} does not lead {stream}", limit=20)


def free_ports(count: int) -> list[int]:
    """Ports on loopback that nobody uses at this moment, each another one."""
    with ExitStack() as probes:
        opened = [probes.enter_context(socket.socket()) for _ in range(count)]
        for probe in opened:
            probe.bind(("127.0.0.1", 0))
        return [int(probe.getsockname()[1]) for probe in opened]


async def wait_until(fact: Callable[[], Awaitable[bool]], otherwise: str, *, limit: float) -> None:
    """Wait for a fact, at most `limit` seconds."""
    until = time.monotonic() + limit
    while not await fact():
        assert time.monotonic() < until, f"{otherwise} within {limit:g} s"
        await anyio.sleep(0.05)


@asynccontextmanager
async def running_cluster(folder: Path) -> AsyncGenerator[Cluster]:
    """A healthy cluster, ended at the end of the block."""
    cluster = Cluster(folder)
    try:
        await cluster.start()
        await cluster.heal()
        yield cluster
    finally:
        with anyio.CancelScope(shield=True):
            await cluster.stop()
