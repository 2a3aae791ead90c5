"""The front end's ceiling: bare health requests over connections that stay open, each in a process of its own."""

from __future__ import annotations

import multiprocessing
import socket
import time

REQUEST = b"GET /v2/health/live HTTP/1.1\r\nHost: localhost\r\n\r\n"


def _ask(port: int, seconds: float, start, counts) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        start.wait()
        until, count = time.monotonic() + seconds, 0
        while time.monotonic() < until:
            connection.sendall(REQUEST)
            # A live server answers with a head alone, of far fewer bytes than are read here.
            reply = connection.recv(4096)
            while not reply.endswith(b"\r\n\r\n"):
                piece = connection.recv(4096)
                if not piece:
                    raise ConnectionError(f"the server closed the connection after {reply!r}")
                reply += piece
            if b" 200 " not in reply.split(b"\r\n", 1)[0]:
                raise ConnectionError(f"the server is not live: {reply!r}")
            count += 1
        counts.put(count)


def rate(port: int, concurrency: int, seconds: float) -> float:
    """Answered health requests a second with so many under way at a time."""
    context = multiprocessing.get_context("fork")
    start, counts = context.Barrier(concurrency), context.Queue()
    workers = [context.Process(target=_ask, args=(port, seconds, start, counts)) for _ in range(concurrency)]
    for worker in workers:
        worker.start()
    total = sum(counts.get(timeout=seconds + 60) for _ in workers)
    for worker in workers:
        worker.join()
    return total / seconds
