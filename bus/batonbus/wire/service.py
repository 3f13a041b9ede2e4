"""The bus as a NATS micro service: agents ask it, so they never need to read the ledger."""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager

import anyio
from nats.micro import add_service  # pyright: ignore[reportUnknownVariableType] - untyped kwargs
from nats.micro.request import Request
from nats.micro.service import EndpointConfig, ServiceConfig

from batonbus.logs import log
from batonbus.wire.connection import Connection

Handler = Callable[[str, bytes], Awaitable[bytes]]
"""Takes the asking actor (as the subject says it) and the request; returns the answer."""


@asynccontextmanager
async def serve(
    connection: Connection, fleet: str, handlers: Mapping[str, Handler]
) -> AsyncGenerator[None]:
    """Answer `<fleet>.ask.<verb>.<actor>` for each verb, together with every other keeper."""
    service = await add_service(
        connection.client,
        ServiceConfig(
            name=f"batonbus-{fleet}",
            version="1.0.0",
            description="The state of a chain, for those who are part of it",
            queue_group="keepers",
        ),
    )
    for verb, handler in handlers.items():
        await service.add_endpoint(
            EndpointConfig(name=verb, subject=f"{fleet}.ask.{verb}.*", handler=_endpoint(handler))
        )
    try:
        yield
    finally:
        # nats-py loses its connection when this is cancelled half-way.
        with anyio.CancelScope(shield=True), anyio.move_on_after(2):
            if not connection.client.is_closed:
                await service.stop()


def _endpoint(handler: Handler) -> Callable[[Request], Awaitable[None]]:
    async def answer(request: Request) -> None:
        actor = request.subject.rsplit(".", 1)[1]
        try:
            await request.respond(await handler(actor, request.data))
        except Exception as error:  # noqa: BLE001 - The top of a loop: one bad request must not end the service.
            log.warning("ask.failed", actor=actor, subject=request.subject, error=repr(error))
            await request.respond_error("500", type(error).__name__, data=str(error).encode())

    return answer
