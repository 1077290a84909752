"""Processes that train, forked from one that has imported what they need, which takes seconds.

That one, the nursery, is a fresh interpreter: it has nothing of whoever started it, trains nothing and starts no
thread, so that forking is safe. Where an import has started one, or where nobody can tell, each child is a fresh
interpreter too. This module imports little, so that a command can start the nursery before it imports torch itself.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import traceback
from pathlib import Path
from typing import IO

_TRAINER = str(Path(__file__).with_name("child.py"))  # `-m` would put the current folder first on its path
_THREAD_VARIABLES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_HEADER = 8  # bytes: how long a request is; the ends of its pipes travel with them
_lock = threading.Lock()
_nurseries: list[Nursery] = []


def prepare(threads: int) -> None:
    """Begins the imports, so that they are done, or nearly, when the first process is asked for."""
    if hasattr(os, "fork"):
        _current(threads)


def new_process(threads: int) -> Forked | subprocess.Popen[str]:
    """A process that trains on so many threads."""
    if hasattr(os, "fork"):
        return Forked(_current(threads))
    pipe = subprocess.PIPE
    command, environment = [sys.executable, _TRAINER], _environment(threads)
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, env=environment, text=True, encoding="utf-8")


@atexit.register
def close() -> None:
    """Ends every nursery of this process, not their children."""
    with _lock:
        while _nurseries:
            _nurseries.pop().close()


def path_for_children() -> list[str]:
    """This process's own, without the current folder, which may have a `queue.py` or the like.

    It stays where PYTHONPATH has it, and comes last where the package itself is in it. What a spec names as
    `module:callable` is looked for there in the end, too.
    """
    asked_for = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    here = ("", str(Path.cwd()))
    kept = [place for place in sys.path if place not in here or (place and place in asked_for)]
    package = str(Path(__file__).parents[3])
    return kept if package in kept else [*kept, package]


def _current(threads: int) -> Nursery:
    wanted = (sys.executable, threads, path_for_children())
    with _lock:
        for one in [one for one in _nurseries if one.process.poll() is not None]:
            _nurseries.remove(one)
            one.close()
        if not any(one.made_of == wanted for one in _nurseries):
            _nurseries.append(Nursery(*wanted))
        return next(one for one in _nurseries if one.made_of == wanted)


def _environment(threads: int) -> dict[str, str]:
    return {**os.environ, **dict.fromkeys(_THREAD_VARIABLES, str(threads))}


class Nursery:
    """The process that forks, as whoever started it sees it."""

    def __init__(self, executable: str, threads: int, path: list[str]) -> None:
        self.made_of = (executable, threads, path)
        self.threads = threads
        self._requests, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [executable, __file__, str(theirs.fileno()), json.dumps(path)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=_environment(threads),
                pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for the driver, which then ends its children
            )

    def ask(self, pipes: list[int]) -> None:
        """For a child at these ends of pipes; a nursery that is dead drops them, which is seen at the other ends."""
        request = json.dumps(_environment(self.threads)).encode()
        with _lock, contextlib.suppress(OSError):
            socket.send_fds(self._requests, [len(request).to_bytes(_HEADER, "big")], pipes)
            self._requests.sendall(request)

    def close(self) -> None:
        self._requests.close()
        self.process.kill()
        self.process.wait()


class Forked:
    """A child of the nursery: what of `subprocess.Popen` is used, but its number comes when the imports are done."""

    def __init__(self, nursery: Nursery) -> None:
        ours, theirs = zip(os.pipe()[::-1], os.pipe(), os.pipe(), os.pipe(), strict=True)
        self.stdin: IO[str] = os.fdopen(ours[0], "w", encoding="utf-8")
        self.stdout: IO[str] = os.fdopen(ours[1], encoding="utf-8")
        self.stderr: IO[str] = os.fdopen(ours[2], encoding="utf-8")
        self.pid: int | None = None
        self._code: int | None = None
        self._ended = threading.Event()
        nursery.ask(list(theirs))
        for end in theirs:
            os.close(end)
        threading.Thread(target=self._listen, args=(nursery, os.fdopen(ours[3])), daemon=True).start()

    def _listen(self, nursery: Nursery, status: IO[str]) -> None:
        """The nursery writes its child's number, and later its exit code."""
        with status:
            if number := status.readline().strip():
                self.pid = int(number)
                self._code = int(status.readline() or -signal.SIGKILL)  # who would know was killed itself
            else:
                self._code = nursery.process.wait()
        self._ended.set()

    def poll(self) -> int | None:
        """The exit code; None while it lives."""
        return self._code if self._ended.is_set() else None

    def kill(self) -> None:
        """With whatever it started: it leads a group of its own."""
        if self.pid is not None:
            os.killpg(self.pid, signal.SIGKILL)

    def wait(self, timeout: float) -> int | None:
        """The exit code."""
        if not self._ended.wait(timeout):
            raise subprocess.TimeoutExpired(_TRAINER, timeout)
        return self._code


def _serve(requests: socket.socket) -> None:
    """The nursery itself, until whoever started it is gone."""
    forks = _imported()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # a child that ends wakes it
    told: dict[int, int] = {}
    while True:
        ready, _, _ = select.select([requests.fileno(), woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            _tell_ends(told)
        if requests.fileno() in ready:
            header, pipes, *_ = socket.recv_fds(requests, _HEADER, 4)
            if not header:
                return
            environment = _exactly(requests, int.from_bytes(header, "big"))
            number = os.fork()
            if not number:
                _become(json.loads(environment), pipes, [requests.detach(), woken, wakes, *told.values()], forks)
            os.setpgid(number, number)
            for end in pipes[:3]:
                os.close(end)
            os.write(pipes[3], f"{number}\n".encode())
            told[number] = pipes[3]


def _imported() -> bool:
    """Whether forking is safe, and worth it: all is imported, by a single thread."""
    try:
        import torch._dynamo  # noqa: F401 - torch's optimizers import it at their first step

        from cmalight.bench.running import child, one_run  # noqa: F401
    except Exception:  # a fresh interpreter fails alike, and says so to whoever waits for it
        return False
    gc.collect()
    gc.freeze()  # so that its children share what it has
    return sys.platform == "linux" and len(os.listdir("/proc/self/task")) == 1


def _exactly(requests: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count and (part := requests.recv(count - len(found))):
        found += part
    return found


def _tell_ends(told: dict[int, int]) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG))[0]:
            status = told.pop(ended[0])
            with contextlib.suppress(OSError):
                os.write(status, f"{os.waitstatus_to_exitcode(ended[1])}\n".encode())
            os.close(status)


def _become(environment: dict[str, str], pipes: list[int], others: list[int], forks: bool) -> None:
    """In the child, which trains and never returns."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.setpgid(0, 0)
    for place, end in enumerate(pipes[:3]):
        os.dup2(end, place)
    for end in (*pipes[:3], *others):
        os.close(end)
    os.set_inheritable(pipes[3], False)  # kept: it closes when the child ends
    os.environ.clear()
    os.environ.update(environment)
    try:
        if not forks:
            os.execve(sys.executable, [sys.executable, _TRAINER], environment)
        from cmalight.bench.running import child

        child.main()
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    os._exit(1)


if __name__ == "__main__":
    _start = socket.socket(fileno=int(sys.argv[1]))
    sys.path[:] = json.loads(sys.argv[2])
    _serve(_start)
