"""nats-py's client, fit to read what strangers write.

The server stores almost any bytes as a subject or a header. nats-py's read loop ends without a word
at those that are no UTF-8, or that are cut short; and it splits a line at any white space, the
server at blanks and tabs alone. One such message among a stream's subjects would deafen every
process that reads the stream, again after each restart.
"""

import asyncio
import re
from asyncio import StreamWriter
from typing import Any, cast

from nats.aio.client import Client
from nats.aio.msg import Msg
from nats.aio.transport import TcpTransport
from nats.protocol import parser

VERSION = b"NATS/1.0"

_NOT_SPACE, _NOT_BLANK = rb"[^\s]+", rb"[^ \t\r\n]+"

parser.MSG_RE = re.compile(parser.MSG_RE.pattern.replace(_NOT_SPACE, _NOT_BLANK))
parser.HMSG_RE = re.compile(parser.HMSG_RE.pattern.replace(_NOT_SPACE, _NOT_BLANK))


def parse_headers(raw: bytes) -> dict[str, str]:
    """The headers of one message; a status line becomes `Status` and `Description`.

    The one way to read them, so that two readers never see one event differently. A repeated name
    gets all its values, joined as in HTTP (RFC 9110, 5.3): none can stand in for another.
    """
    first, *lines = raw.decode(errors="replace").split("\r\n")
    headers: dict[str, str] = {}
    status, _, description = first[len(VERSION) :].strip(" ").partition(" ")
    if status:
        headers |= {"Status": status, "Description": description}
    for line in lines:
        name, colon, value = line.partition(":")
        if colon:
            value = value.strip(" \t")
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


class NatsClient(Client):
    """nats-py's client, with its own ways to read what came, and to leave a dead connection."""

    _pongs: list[asyncio.Future[Any]]

    @property
    def cluster(self) -> str:
        """The name of the cluster that the connected server is part of; empty for a lone one."""
        return str(self._server_info.get("cluster") or "")

    async def _process_pong(self) -> None:
        # The read loop would end at the answer to a ping whose waiter was cancelled meanwhile.
        if self._pongs and self._pongs[0].done():
            self._pongs[0] = asyncio.get_running_loop().create_future()
        await super()._process_pong()

    async def _process_op_err(self, e: Exception) -> None:
        # nats-py waits for what a dead connection did not take, until TCP gives up: 15 minutes.
        transport = self._transport
        if self.is_connected and isinstance(transport, TcpTransport) and transport:
            writer = cast("StreamWriter", transport._io_writer)  # pyright: ignore[reportPrivateUsage]
            writer.transport.abort()
        await super()._process_op_err(e)

    async def _process_headers(self, headers: bytes | None) -> dict[str, str] | None:
        return parse_headers(headers) if headers else None

    def _build_message(
        self, sid: int, subject: bytes, reply: bytes, data: bytes, headers: dict[str, str] | None
    ) -> Msg:
        return self.msg_class(
            subject=subject.decode(errors="replace"),
            reply=reply.decode(errors="replace"),
            data=data,
            headers=headers,
            _client=self,
            _sid=sid,
        )
