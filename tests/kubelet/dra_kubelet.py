# SPDX-License-Identifier: Apache-2.0
"""A simulation of the kubelet's side of DRA, with the real protocol and real sockets.

Like the kubelet, it dials each socket that appears in plugins_registry, and asks it for its
information within a second; it calls the newest driver of a name, in the first version of the
service that both know; a removed socket ends the registration.
"""

from __future__ import annotations

import os
import stat
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import grpc

from gpuhook.device_plugin.api import services
from gpuhook.device_plugin.api.services import Method
from gpuhook.dra.api import dra_pb2 as api
from gpuhook.dra.api import dra_services
from gpuhook.dra.api import pluginregistration_pb2 as registration
from gpuhook.dra.claims.claim import ClaimName
from tests.waiting import Changes

T = TypeVar("T")
TIMEOUT = 45.0  # seconds, the kubelet's


@dataclass
class DraPlugin:
    """A registered driver. `supported` are the versions that its information names."""

    name: str
    endpoint: str
    supported: list[str]
    registry_socket: Path
    channel: grpc.Channel = field(repr=False)


def call(
    channel: grpc.Channel, method: Method[Any, Any], request: Any, timeout: float = TIMEOUT
) -> Any:
    """Call a method; raises grpc.RpcError."""
    return channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )(request, timeout=timeout)


def connect(path: str | Path) -> grpc.Channel:
    """Return a connection to a socket."""
    return grpc.insecure_channel(services.target(str(path)), options=list(services.CHANNEL_OPTIONS))


class DraKubelet:
    """A kubelet below `root`. It refuses all drivers with the message `refuses`, if that is set.

    `versions` are the versions of the service that it knows.
    """

    def __init__(self, root: Path, versions: Iterable[str] = ("v1", "v1beta1")) -> None:
        self.root = root
        self.registry = root / "plugins_registry"
        self.plugins = root / "plugins"
        self.versions = tuple(versions)
        self.refuses = ""
        self.changes = Changes()
        self.registrations: list[DraPlugin] = []  # all, also former ones
        self.refusals = 0
        self._known: dict[Path, tuple[tuple[int, ...], DraPlugin | None]] = {}
        self._ending = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> DraKubelet:  # noqa: PYI034  # Self is of Python 3.11
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Begin to look for drivers; sockets that are there already are dialled."""
        self.registry.mkdir(parents=True, exist_ok=True)
        self._ending.clear()
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop, and leave the sockets."""
        self._ending.set()
        if self._thread is not None:
            self._thread.join()
        for path in list(self._known):
            self._forget(path)

    def restart(self) -> None:
        self.stop()
        self.start()

    def plugin(self, driver: str) -> DraPlugin:
        """Return the newest driver of a name that is registered; wait for one."""

        def live() -> list[DraPlugin]:
            known = {id(one) for _, one in self._known.values()}
            return [p for p in self.registrations if p.name == driver and id(p) in known]

        self.changes.wait_for(live, f"the driver {driver}")
        return live()[-1]

    def wait_for_registrations(self, count: int) -> None:
        self.changes.wait_for(lambda: len(self.registrations) >= count, f"{count} registrations")

    def version(self, plugin: DraPlugin) -> str:
        """Return the first version of the driver's list that this kubelet knows."""
        known = {dra_services.supported(version): version for version in self.versions}
        return next(known[name] for name in plugin.supported if name in known)

    def prepare(
        self, driver: str, *claims: ClaimName, version: str = ""
    ) -> dict[str, api.NodePrepareResourceResponse]:
        """Call NodePrepareResources; each asked claim must have an entry. Raises grpc.RpcError."""
        request = api.NodePrepareResourcesRequest(claims=map(claim, claims))
        found = self._call(driver, dra_services.prepare, request, version)
        return answered(claims, dict(found.claims))

    def unprepare(
        self, driver: str, *claims: ClaimName, version: str = ""
    ) -> dict[str, api.NodeUnprepareResourceResponse]:
        """Call NodeUnprepareResources in the same way."""
        request = api.NodeUnprepareResourcesRequest(claims=map(claim, claims))
        found = self._call(driver, dra_services.unprepare, request, version)
        return answered(claims, dict(found.claims))

    def _call(
        self, driver: str, method: Callable[[str], Method[Any, Any]], request: Any, version: str
    ) -> Any:
        plugin = self.plugin(driver)
        return call(plugin.channel, method(version or self.version(plugin)), request)

    def _look(self) -> None:
        while not self._ending.wait(0.01):
            found = {path: inode for path in self.registry.iterdir() if (inode := _socket(path))}
            for path, (inode, _) in list(self._known.items()):
                if found.get(path) != inode:
                    self._forget(path)
            for path, inode in found.items():
                if path not in self._known:
                    self._register(path, inode)

    def _register(self, path: Path, inode: tuple[int, ...]) -> None:
        channel = connect(path)
        try:
            info = call(channel, dra_services.GET_INFO, registration.InfoRequest(), 1.0)
            plugin = self._checked(path, info)
            status = registration.RegistrationStatus(
                plugin_registered=not self.refuses, error=self.refuses
            )
            call(channel, dra_services.NOTIFY, status, 5.0)
        except grpc.RpcError:
            return  # it looks again
        finally:
            channel.close()
        with self.changes:
            self._known[path] = inode, None if self.refuses else plugin
            if self.refuses:
                self.refusals += 1
            else:
                self.registrations.append(plugin)

    def _checked(self, path: Path, info: registration.PluginInfo) -> DraPlugin:
        """Return the driver; the kubelet requires a type, and an endpoint that exists."""
        assert info.type == "DRAPlugin"
        assert _socket(Path(info.endpoint))
        supported = list(info.supported_versions)
        return DraPlugin(info.name, info.endpoint, supported, path, connect(info.endpoint))

    def _forget(self, path: Path) -> None:
        with self.changes:
            _, plugin = self._known.pop(path)
        if plugin is not None:
            plugin.channel.close()


def answered(claims: Iterable[ClaimName], found: dict[str, T]) -> dict[str, T]:
    """Return the entries of a response; the kubelet refuses one with other claims than asked."""
    assert found.keys() == {one.uid for one in claims}
    return found


def claim(name: ClaimName) -> api.Claim:
    return api.Claim(namespace=name.namespace, name=name.name, uid=name.uid)


def _socket(path: Path) -> tuple[int, ...]:
    """Return what identifies a socket with a visible name, () for anything else."""
    try:
        status = path.lstat()
    except OSError:
        return ()
    if path.name.startswith(".") or not stat.S_ISSOCK(status.st_mode):
        return ()
    return status.st_dev, status.st_ino, status.st_ctime_ns


def mode_of(path: str | Path) -> int:
    """Return the permission bits of a file."""
    return stat.S_IMODE(os.lstat(path).st_mode)
