# SPDX-License-Identifier: Apache-2.0
"""The memory of a simulated node's GPUs: processes allocate it, the driver enforces limits.

A server on a unix socket replaces the kernel module. It identifies its clients as the module does:
by the process that opens it (SO_PEERCRED) and that process's cgroup. A process has its memory until
its connection ends. The node's NVML reports that memory, too: as compute processes with the
host's pids, as used memory, and as the use of a cgroup with a limit.

    with driver_memory.serving(short_path, node) as driver:
        with driver.started(uuid, "alloc", "100", "hold", cgroup=cgroup) as process:
            assert process.stdout.readline() == "ok\n"
            assert driver.held() == {process.pid: 100 << 20}

In a container, bind-mount `driver.socket` and `driver.probe`, and run `/gpu-probe /gpu.sock UUID
alloc 100 hold`: gpu_probe.c has all its words.
"""

from __future__ import annotations

import os
import select
import socket
import struct
import subprocess
import threading
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.simulated import build, cgroups, memory_accounts
from tests.simulated.memory_accounts import Held

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.simulated.node import SimulatedNode

_SECONDS = 10
_UCRED = struct.Struct("iII")


@dataclass(frozen=True, slots=True)
class Refusal:
    """A failed allocation: its process, device, bytes and reason."""

    pid: int
    uuid: str
    size: int
    why: str


@dataclass(eq=False, slots=True)
class _Client:
    connection: socket.socket
    pid: int
    sizes: dict[str, int] = field(default_factory=dict)
    cgroups: list[int] = field(default_factory=list)

    def is_gone(self) -> bool:
        """Return whether the other end was closed, as when its process has exited."""
        poll = select.poll()
        poll.register(self.connection, select.POLLRDHUP)
        return bool(poll.poll(0))


class DriverMemory:
    """The running server. `socket` is its address, `probe` the program that uses it."""

    def __init__(self, directory: Path, node: SimulatedNode) -> None:
        self.socket = directory / "gpu-memory.sock"
        self.probe = build.gpu_probe()
        self.node = node
        self.refusals: list[Refusal] = []
        self._clients: list[_Client] = []
        self._lock = threading.Lock()
        self._listening = _listening(self.socket)
        self._told: list[Held] = []
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def held(self, uuid: str | None = None) -> dict[int, int]:
        """Return the bytes that each process has allocated, by pid: of all devices, or of one."""
        found: dict[int, int] = {}
        with self._lock:
            for one in self._swept():
                if uuid in (None, one.uuid):
                    found[one.pid] = found.get(one.pid, 0) + one.size
        return found

    def used(self, uuid: str) -> int:
        """Return the bytes of the device that all processes have allocated."""
        return sum(self.held(uuid).values())

    def capacity(self, uuid: str) -> int:
        """Return the bytes of the device that all processes together may allocate."""
        found = memory_accounts.capacity_of(self.node, uuid)
        assert found is not None, uuid
        return found

    def until(self, is_so: Callable[[dict[int, int]], bool]) -> dict[int, int]:
        """Wait until `is_so(held())`, and return held() at that moment. Raises TimeoutError."""
        deadline = time.monotonic() + _SECONDS
        while not is_so(held := self.held()):
            if time.monotonic() > deadline:
                raise TimeoutError(str(held))
            time.sleep(0.01)
        return held

    @contextmanager
    def started(
        self, uuid: str, *words: str, cgroup: Path | None = None
    ) -> Iterator[subprocess.Popen[str]]:
        """Run the probe on the host, in `cgroup` or the current one; kill it at the end.

        Children that it forked are not: they end with the driver, or with their cgroup.
        """
        command = [str(self.probe), str(self.socket), uuid, *words]
        if cgroup is not None:
            enter = f'echo $$ > "{cgroup}/cgroup.procs" && exec "$@"'
            command = ["sh", "-c", enter, "sh", *command]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            try:
                yield process
            finally:
                process.kill()

    def ran(self, uuid: str, *words: str, cgroup: Path | None = None) -> str:
        """Run the probe to its end and return its output; its memory is then free."""
        with self.started(uuid, *words, cgroup=cgroup) as process:
            printed = process.communicate(timeout=_SECONDS)[0]
        self.until(lambda held: process.pid not in held)
        return printed

    def close(self) -> None:
        """End the server, once: its memory is freed, and probes that have memory end."""
        if self._is_closed:
            return
        # Not close() alone: it leaves a thread in accept() there, and the address in use.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            self._is_closed = True
            for client in self._clients:
                with suppress(OSError):  # its process has just ended
                    client.connection.shutdown(socket.SHUT_RDWR)
            self._clients.clear()
            self._swept()
        self.socket.unlink()

    def _accept(self) -> None:
        while True:
            try:
                connection, _address = self._listening.accept()
            except OSError:
                return
            credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _UCRED.size)
            client = _Client(connection, _UCRED.unpack(credentials)[0])
            with self._lock:
                if self._is_closed:
                    connection.close()
                    return
                self._clients.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: _Client) -> None:
        with client.connection, client.connection.makefile("r", encoding="ascii") as lines:
            with suppress(OSError):  # killed in the middle of it
                for line in lines:
                    verb, uuid, size = line.split()
                    client.connection.sendall(self._answer(client, verb, uuid, int(size)).encode())
            with self._lock:
                if client in self._clients:
                    self._clients.remove(client)
                self._swept()

    def _answer(self, client: _Client, verb: str, uuid: str, size: int) -> str:
        with self._lock:
            held = self._swept()
            if verb == "info":
                of_process = cgroups.of_process(client.pid)
                total, free = memory_accounts.reported_memory(self.node, held, uuid, of_process)
                return f"total {total >> 20} MiB free {free >> 20} MiB\n"
            if verb == "free":
                client.sizes[uuid] = max(0, client.sizes.get(uuid, 0) - size)
            else:
                client.cgroups = cgroups.of_process(client.pid)
                why = memory_accounts.refusal(self.node, held, uuid, size, client.cgroups)
                if why is not None:
                    self.refusals.append(Refusal(client.pid, uuid, size, why))
                    return f"{why}\n"
                client.sizes[uuid] = client.sizes.get(uuid, 0) + size
            self._swept()
            return "ok\n"

    def _swept(self) -> list[Held]:
        """Return the memory that processes have now, and let NVML report it."""
        self._clients = [client for client in self._clients if not client.is_gone()]
        held = [
            Held(client.pid, uuid, size, tuple(client.cgroups))
            for client in self._clients
            for uuid, size in client.sizes.items()
            if size
        ]
        if held != self._told:
            self._tell(held)
            self._told = held
        return held

    def _tell(self, held: list[Held]) -> None:
        lines = [f"{h.uuid} {h.pid} {h.size} {' '.join(map(str, h.cgroups))}\n" for h in held]
        file = Path(self.node.nvml_profile).with_name("nvml-stub.held")
        new = file.with_suffix(".held.new")
        new.write_text("".join(lines), encoding="ascii")
        new.rename(file)


@contextmanager
def serving(directory: str | Path, node: SimulatedNode) -> Iterator[DriverMemory]:
    """Serve the memory of the node's GPUs on a socket in `directory` until the end."""
    driver = DriverMemory(Path(directory), node)
    try:
        yield driver
    finally:
        driver.close()


def _listening(path: Path) -> socket.socket:
    """Return a socket for all users, bound by a short name: a whole path may be too long."""
    listening = socket.socket(socket.AF_UNIX)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        listening.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.close(directory)
    path.chmod(0o666)
    listening.listen(128)
    return listening
