"""A stand-in for the service that does nothing but answer status polls, so that a benchmark measures who asks.

    python benchmarks/status_service.py LATENCY_MS [CERTIFICATE KEY]

It prints its port. Jobs run until `/_end/N` is asked for: then those whose id ends in a number below N have completed.
`/_tally` tells how many polls came, over how many connections, and the most that were open at once.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys


class Status(asyncio.Protocol):
    """One connection. The counts are of all of them."""

    polls = opened = open_now = most_open = ended_below = 0
    latency_s = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._data = b""
        Status.opened += 1
        Status.open_now += 1
        Status.most_open = max(Status.most_open, Status.open_now)

    def connection_lost(self, _: Exception | None) -> None:
        Status.open_now -= 1

    def data_received(self, data: bytes) -> None:
        self._data += data
        while b"\r\n\r\n" in self._data:
            head, _, self._data = self._data.partition(b"\r\n\r\n")
            self._answer(head.split(b" ", 2)[1].partition(b"?")[0].decode())

    def _answer(self, path: str) -> None:
        if path.startswith("/_end/"):
            Status.ended_below = int(path.rpartition("/")[2])
            return self._send({})
        if path == "/_tally":
            names = ("polls", "opened", "open_now", "most_open")
            return self._send({name: getattr(Status, name) for name in names})
        Status.polls += 1
        asyncio.get_running_loop().call_later(self.latency_s, self._tell, path)
        return None

    def _tell(self, path: str) -> None:
        ended = int(path.rpartition("-")[2]) < Status.ended_below
        count = 1000 if ended else 417
        self._send(
            {
                "success": True,
                "status": "completed" if ended else "scraping",
                "total": 1000,
                "completed": count,
                "creditsUsed": count,
                "expiresAt": "2026-11-22T16:12:09.000Z",
                "data": [],
            }
        )

    def _send(self, value: dict[str, object]) -> None:
        body = json.dumps(value).encode()
        head = (
            f"HTTP/1.1 200 OK\r\ncontent-type: application/json; charset=utf-8\r\ncontent-length: {len(body)}\r\n\r\n"
        )
        self._transport.write(head.encode() + body)


async def main(latency_ms: float, *certificate: str) -> None:
    Status.latency_s = latency_ms / 1000
    tls = None
    if certificate:
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        tls.load_cert_chain(*certificate)
    server = await asyncio.get_running_loop().create_server(Status, "127.0.0.1", 0, ssl=tls, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(float(sys.argv[1]), *sys.argv[2:]))
