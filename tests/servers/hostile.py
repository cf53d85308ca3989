# Goal of this file: servers that are not what dlock hopes to find.

import contextlib
import socket
import threading

from proxy import close_with_reset

RESET = object()  # an answer: reset the connection
SILENCE = None    # an answer: none


def array(*members):
    """A RESP2 array of integers (int) and strings (bytes)."""
    out = [b"*%d\r\n" % len(members)]
    for m in members:
        out.append(b":%d\r\n" % m if isinstance(m, int) else b"$%d\r\n%s\r\n" % (len(m), m))
    return b"".join(out)


def granted(token=b"1700000000000000", slot=0):
    return array(1, token, slot)


def waiting(place=1, left=1000, held=5, record=b"{}", ticket=7, kind=b"x", holders=1):
    return array(0, place, left, held, record, ticket, kind, holders)


GRANTED = granted()  # to acquire and renew
DONE = array(1)  # to release


def requests_in(buffer):
    """Takes complete requests (lists of words) off a bytearray."""
    while True:
        rest = bytes(buffer)
        try:
            head, rest = rest.split(b"\r\n", 1)
            words = []
            for _ in range(int(head[1:])):
                size, rest = rest.split(b"\r\n", 1)
                size = int(size[1:])
                if len(rest) < size + 2:
                    return
                words.append(rest[:size])
                rest = rest[size + 2:]
        except ValueError:
            return
        del buffer[:len(buffer) - len(rest)]
        yield words


def operation(words):
    """Which of dlock's operations a request is; otherwise the command's name."""
    for word in words:
        if word in (b"acquire", b"renew", b"release"):
            return word.decode()
    return words[0].decode().lower()


class Hostile:
    """Answers each request with `answers`, by the operation's name or "*", else as a good server would.

    An answer is bytes, SILENCE, RESET, or a list of those, one for each time it is asked.
    `greeting` is sent before anything is asked; `reset_after` bytes have come, the connection is reset.
    """

    GOOD = {"acquire": GRANTED, "renew": GRANTED, "release": DONE, "ping": b"+PONG\r\n", "auth": b"+OK\r\n",
            "select": b"+OK\r\n"}

    def __init__(self, answers=None, greeting=b"", reset_after=None):
        self.answers = {**self.GOOD, **(answers or {})}
        if "*" in self.answers:
            self.answers = {"*": self.answers["*"]}
        self.greeting, self.reset_after = greeting, reset_after
        self.asked = []  # operations, in order
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        self.url = f"redis://127.0.0.1:{self.port}"
        threading.Thread(target=self._serve, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()

    def _serve(self):
        with contextlib.suppress(OSError):
            while True:
                client, _ = self.listener.accept()
                threading.Thread(target=self._talk, args=(client,), daemon=True).start()

    def _answer(self, words):
        name = operation(words)
        self.asked.append(name)
        answer = self.answers.get(name, self.answers.get("*", SILENCE))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        return answer

    def _talk(self, client):
        buffer, come = bytearray(), 0
        with contextlib.suppress(OSError), client:
            client.sendall(self.greeting)
            if self.reset_after == 0:
                close_with_reset(client)
            while data := client.recv(65536 if self.reset_after is None else self.reset_after - come):
                come += len(data)
                buffer += data
                if come == self.reset_after:
                    close_with_reset(client)
                    return
                for words in requests_in(buffer):
                    answer = self._answer(words)
                    if answer is RESET:
                        close_with_reset(client)
                        return
                    if answer is not SILENCE:
                        client.sendall(answer)
