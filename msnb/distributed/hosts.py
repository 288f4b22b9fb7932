"""The watchers of several hosts, in touch with each other.

A star around the first host, over TCP, on the port after the scheduler's: lines of JSON. The ranks
start once every host is there; a beat each second says that a host is alive, and one that falls
silent is lost. MindSpore's own detection took 35 to 38 seconds where a link was cut and gave a
node's number at best.
"""

from __future__ import annotations

import contextlib
import json
import socket
import time
from dataclasses import dataclass, field
from typing import Any

BEAT = 1.0  # seconds between two signs of life
SILENCE = 8.0  # seconds after which a host is lost
_LINE = 1 << 16  # bytes of one message


class Lost(Exception):
    """The job cannot go on; ``detail`` says which ``host``, and ``said``, what is known of it."""

    def __init__(self, host: str, said: str, **detail: Any) -> None:
        super().__init__(f"{host}: {said}")
        self.detail = {"host": host, "said": said, **detail}


@dataclass
class _Link:
    """A connection to another watcher; ``node`` is ``None`` until it has said who it is."""

    socket: socket.socket
    node: int | None = None
    heard: float = field(default_factory=time.monotonic)
    received: bytes = b""

    def __post_init__(self) -> None:
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def send(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # full or broken: silence will tell
            self.socket.sendall(json.dumps(message).encode() + b"\n")

    def messages(self) -> list[dict[str, Any]]:
        """What has arrived; ``ConnectionError`` at its end."""
        try:
            while chunk := self.socket.recv(_LINE):
                self.received += chunk
                self.heard = time.monotonic()
                if len(self.received) > _LINE:
                    raise ConnectionError("no line of ours")
            ended = True
        except BlockingIOError:
            ended = False
        *lines, self.received = self.received.split(b"\n")
        try:
            found = [json.loads(line) for line in lines]
        except ValueError:
            raise ConnectionError("no line of ours") from None
        if ended and not found:
            raise ConnectionError("closed")
        return [message for message in found if isinstance(message, dict)]


class Hosts:
    """This host's end of the star.

    ``names`` are the hosts, ``node`` is this one's place, ``address`` the first one's, ``agreed``
    what all must have in common. Every method raises ``Lost`` where the job cannot go on.
    """

    def __init__(
        self, names: list[str], node: int, address: str, port: int, agreed: dict[str, Any]
    ) -> None:
        self.names, self.node, self._where, self._agreed = names, node, (address, port), agreed
        self.done: set[int] = set()
        self._links: list[_Link] = []
        self._all_done = False
        self._beaten = 0.0
        self._listener: socket.socket | None = None
        if node == 0 and len(names) > 1:
            self._listener = socket.create_server((address, port), backlog=len(names))
            self._listener.setblocking(False)

    def meet(self, limit: float) -> bool:
        """One step towards having everybody here; whether they are.

        ``limit`` is the moment (``time.monotonic``) at which those who are missing are lost.
        """
        late = time.monotonic() > limit
        if self.node:
            return self._meet_first(late)
        self._accept()
        self._hear()
        there = {link.node for link in self._links}
        missing = [n for n in range(1, len(self.names)) if n not in there]
        if missing and late:
            shown = ", ".join(f"{self.names[n]} (node rank {n})" for n in missing)
            raise Lost(shown, "never came", started=False)
        if not missing:
            self._tell(go=True)
        return not missing

    def _meet_first(self, late: bool) -> bool:
        first = self.names[0]
        if not self._links:
            try:
                connection = socket.create_connection(self._where, timeout=1.0)
            except OSError as error:
                if late:
                    said = f"cannot be reached on port {self._where[1]}: {error.strerror or error}"
                    raise Lost(f"{first} (node rank 0)", said, started=False) from None
                time.sleep(0.2)
                return False
            self._links.append(_Link(connection, 0))
            self._links[0].send(node=self.node, agreed=self._agreed)
        if any(message.get("go") for message in self._hear()):
            return True
        if late:
            raise Lost("another host", "never came: the first host still waits", started=False)
        return False

    def look(self) -> None:
        """Beat, listen, and notice who fell silent."""
        now = time.monotonic()
        if now > self._beaten + BEAT:
            self._beaten = now
            self._tell(beat=True)
        self._hear()
        for link in self._links:
            if now > link.heard + SILENCE:
                name = self.names[link.node or 0]
                raise Lost(name, f"nothing was heard of it for {SILENCE:g} s")

    def finish(self) -> bool:
        """Say that all ranks here ended well; whether those of all hosts have."""
        if self.node not in self.done:
            self.done.add(self.node)
            self._tell(done=self.node)
        if self.node == 0 and len(self.done) == len(self.names) and not self._all_done:
            self._all_done = True
            self._tell(all_done=True)
        return self._all_done

    def close(self, said: str = "") -> None:
        """Say why it ends here, unless it ended well, and hang up."""
        if said:
            self._tell(end=said, host=self.names[self.node])
        for link in self._links:
            link.socket.close()
        if self._listener is not None:
            self._listener.close()

    def _tell(self, **message: Any) -> None:
        for link in self._links:
            if link.node is not None:
                link.send(**message)

    def _accept(self) -> None:
        if self._listener is None:  # a single host
            return
        with contextlib.suppress(BlockingIOError):
            while True:
                connection, _ = self._listener.accept()
                self._links.append(_Link(connection))

    def _hear(self) -> list[dict[str, Any]]:
        heard = []
        for link in list(self._links):
            try:
                messages = link.messages()
            except OSError:
                self._links.remove(link)
                link.socket.close()
                finished = self.node == 0 and link.node in self.done
                if link.node is None or finished or self._all_done:
                    continue
                name = self.names[link.node]
                raise Lost(name, "its launcher ended without a word") from None
            for message in messages:
                self._take(link, message)
                heard.append(message)
        return heard

    def _take(self, link: _Link, message: dict[str, Any]) -> None:
        if link.node is None:
            self._welcome(link, message)
        elif "refused" in message:
            raise Lost(self.names[0], str(message["refused"]), started=False)
        elif "done" in message:
            self.done.add(int(message["done"]))
        elif "all_done" in message:
            self._all_done = True
        elif "end" in message:
            host, said = str(message.get("host", "")), str(message["end"])
            if self.node == 0:
                self._links.remove(link)
                self._tell(**message)
                link.socket.close()
            raise Lost(host, said, told=True)

    def _welcome(self, link: _Link, message: dict[str, Any]) -> None:
        node, agreed = message.get("node"), message.get("agreed")
        refused = ""
        if not isinstance(node, int) or not 0 < node < len(self.names):
            refused = f"there is no node rank {node!r}"
        elif node in {other.node for other in self._links}:
            refused = f"another host has node rank {node} already"
        elif agreed != self._agreed:
            refused = f"the hosts do not agree: {self._agreed} there, {agreed} here"
        if refused:
            link.send(refused=refused)
            self._links.remove(link)
            link.socket.close()
        else:
            link.node = node
