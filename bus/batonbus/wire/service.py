"""The bus as a NATS micro service: agents ask it, so they never need to read the ledger."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import anyio
from anyio.abc import TaskGroup
from nats.errors import Error as NatsError
from nats.micro import add_service  # pyright: ignore[reportUnknownVariableType] - untyped kwargs
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, ServiceConfig

from batonbus.logs import log
from batonbus.wire.connection import Connection

STOP_TIMEOUT = 2.0
"""Seconds that a service may take to stop."""

ERROR_LIMIT = 2000
"""Characters of an error's text that its asker is told."""

AT_ONCE = 64
"""Questions of one verb that are worked on at a time."""

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Takes the asking actor (as the subject says it) and the request; returns the answer."""


@asynccontextmanager
async def serve(
    connection: Connection, fleet: str, handlers: Mapping[str, Handler]
) -> AsyncGenerator[None]:
    """Answer `<fleet>.ask.<verb>.<actor>` for each verb, together with every other keeper."""
    configuration = ServiceConfig(
        name=f"batonbus-{fleet}",
        version="1.0.0",
        description="The state of a chain for those who are part of it, and contents by hash",
        queue_group="keepers",
    )
    service = await add_service(connection.client, configuration)
    try:
        async with anyio.create_task_group() as tasks:
            for verb, handler in handlers.items():
                subject, endpoint = f"{fleet}.ask.{verb}.*", _endpoint(handler, tasks)
                await service.add_endpoint(
                    EndpointConfig(name=verb, subject=subject, handler=endpoint)
                )
            yield
            tasks.cancel_scope.cancel()
    finally:
        with anyio.move_on_after(STOP_TIMEOUT, shield=True):
            if not connection.client.is_closed:
                await service.stop()


def _endpoint(handler: Handler, tasks: TaskGroup) -> Callable[[Request], Awaitable[None]]:
    free = anyio.Semaphore(AT_ONCE, fast_acquire=True)

    async def receive(request: Request) -> None:
        # nats-py hands requests over one by one: a slow answer must not hold up the next.
        await free.acquire()
        tasks.start_soon(answer, request)

    async def answer(request: Request) -> None:
        actor = request.subject.rsplit(".", 1)[1]
        try:
            await request.respond(await handler(actor, request.data))
        except Exception as error:  # noqa: BLE001 - The top of a loop: one bad request must not end the service.
            log.warning("ask.failed", actor=actor, subject=request.subject, error=repr(error))
            text = str(error)[:ERROR_LIMIT].encode(errors="replace")
            # What cannot be told now is asked again.
            with suppress(NatsError):
                await request.respond_error("500", type(error).__name__, data=text)
        finally:
            free.release()

    return receive
