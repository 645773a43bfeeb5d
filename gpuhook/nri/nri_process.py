# SPDX-License-Identifier: Apache-2.0
"""The process of the NRI plugin: one instance, its connection to the runtime, signals, end."""

from __future__ import annotations

import errno
import os
import socket
import stat
import sys
import time
from binascii import crc32
from contextlib import suppress
from threading import Thread

from gpuhook.device_plugin.kubelet.backoff import Backoff
from gpuhook.entry import cold_command
from gpuhook.errors import fault
from gpuhook.host import service_manager
from gpuhook.host.hot import file_lock, state
from gpuhook.host.logs import logger
from gpuhook.kernel import process
from gpuhook.nri import nri_endpoint
from gpuhook.nri.injection import ContainerLog, Injector
from gpuhook.nri.nri_counters import NriCounters
from gpuhook.nri.nri_service import NriService
from gpuhook.nri.policy import kubelet_grants
from gpuhook.nri.policy.kubelet_grants import KubeletGrants
from gpuhook.nri.policy.request_policy import RequestPolicy
from gpuhook.nri.spec_source import NodeSettings, NodeSpecs
from gpuhook.nri.stop_signal import StopError, StopSignal
from gpuhook.nri.wire import nri_messages
from gpuhook.nri.wire.mux import Mux
from gpuhook.nri.wire.protobuf_wire import WireError
from gpuhook.nri.wire.ttrpc import CallError, Peer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.errors import GpuhookError
    from gpuhook.nri.nri_options import NriOptions
    from gpuhook.nri.wire.protobuf_wire import Message

# Set by a runtime that has started the plugin itself, with a connected socket.
LAUNCHED_ENV, NAME_ENV, INDEX_ENV = "NRI_PLUGIN_SOCKET", "NRI_PLUGIN_NAME", "NRI_PLUGIN_IDX"
_REGISTRATION = 5.0  # seconds for the answer of RegisterPlugin
_START = 30.0  # seconds until the runtime has configured the plugin
_FIRST, _CAP = 0.1, 5.0  # seconds before another try to connect


def run(options: NriOptions) -> int:
    """Serve until SIGTERM or SIGINT, and return the exit status. Raises as NriProcess.run()."""
    return NriProcess(options).run()


class RefusedRegistrationError(Exception):
    """The runtime has refused the plugin."""


class NriProcess:
    """One plugin process."""

    def __init__(self, options: NriOptions) -> None:
        self._options = options
        self.counters = NriCounters()
        launcher = os.path.abspath(sys.argv[0])
        compiler = cold_command.Compiler(launcher)
        self._settings, self._specs = NodeSettings(compiler), NodeSpecs(compiler)
        policy = RequestPolicy(KubeletGrants(options.plugin_directory or kubelet_grants.DIRECTORY))
        hook = options.hook or ""
        injector = Injector(self._specs, self._settings, policy, launcher, hook)
        self._service = NriService(injector, self.counters, is_expanded=options.is_expanded)
        self._stop = StopSignal()

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT, and return the exit status, 0.

        A plugin that a runtime has started ends with its connection. Raises GH2700 to GH2702,
        and the faults of the metrics' address.
        """
        launched = os.environ.get(LAUNCHED_ENV)
        with suppress(OSError):
            process.set_comm(b"gpuhook")  # by which `gpuhook doctor` finds it
        self._stop.begin()
        try:
            trunk = _launched_trunk(launched) if launched else None
            if trunk is None:
                lock(self._options.socket_path)
            if self._options.metrics_address:
                nri_endpoint.serve(self._options.metrics_address, self.counters)
            self._prepare()
            if trunk is None:
                self._keep_connected()
            else:
                self._serve(trunk)
        except StopError:
            logger().info("stopped")
        finally:
            self._stop.end()
            service_manager.notify("STOPPING=1")
        return 0

    def _prepare(self) -> None:
        """Read the settings, and begin to read the devices, before a container asks for any."""
        self._settings.refresh()
        trouble = self._settings.trouble
        if trouble is not None:
            logger().error(trouble.message, code=trouble.code, hint=trouble.hint)
        Thread(target=self._prime, name="gpuhook-prime", daemon=True).start()

    def _prime(self) -> None:
        failure = self._specs.prime(self._settings.chosen, ContainerLog({}))
        if failure:
            logger().error("cannot read the devices of this node", reason=failure)

    def _keep_connected(self) -> None:
        """Connect, again and again; a socket that cannot be used is reported once."""
        backoff, is_expected, reported = Backoff(_FIRST, _CAP), self._options.is_waiting, ""
        while True:
            try:
                trunk = connect(self._options.socket_path)
            except OSError as error:
                trouble = _unreachable(self._options.socket_path, error)
                if not is_expected or error.errno == errno.EACCES:
                    raise trouble from error
                if trouble.message != reported:
                    logger().warning(trouble.message, code=trouble.code, hint=trouble.hint)
                reported = trouble.message
            else:
                is_expected, reported = True, ""
                if self._serve(trunk):
                    backoff.reset()
            self._stop.wait(None, backoff.next())

    def _serve(self, trunk: socket.socket) -> bool:
        """Serve one connection until it ends; returns whether the plugin was in use."""
        link = Mux(trunk)
        self.counters.count("connections")
        try:
            self._converse(link)
        except (OSError, WireError, RefusedRegistrationError) as error:
            logger().warning("disconnected", reason=str(error) or type(error).__name__)
        finally:
            link.close()
            was_in_use = self._service.is_synchronized
            self.counters.is_ready = False
            self._service.disconnect()
        return was_in_use

    def _converse(self, link: Mux) -> None:
        """Register, and serve until the connection ends; raises what ends it."""
        peer = Peer(link, self._service.services)
        answers: list[Message | CallError] = []
        name = os.environ.get(NAME_ENV) or self._options.name
        index = os.environ.get(INDEX_ENV) or self._options.index
        request = nri_messages.registration(name, index)
        peer.call(nri_messages.RUNTIME_SERVICE, "RegisterPlugin", request, answers.append)
        began = time.monotonic()
        while not self._service.is_shut_down:
            left: float | None = None
            if self._service.is_synchronized:
                self._report_ready()
            else:
                left = began + (_START if answers else _REGISTRATION) - time.monotonic()
            if not self._stop.wait(link.fileno(), None if left is None else max(0.0, left)):
                raise TimeoutError("the runtime does not answer")
            peer.step()
            if answers and isinstance(answers[0], CallError):
                raise RefusedRegistrationError(f"the runtime has refused it: {answers[0]}")

    def _report_ready(self) -> None:
        if not self.counters.is_ready:
            self.counters.is_ready = True
            service_manager.notify("READY=1")
            logger().info("ready")


def _launched_trunk(descriptor: str) -> socket.socket:
    """Return the socket of the runtime that has started this process; raises GH2701."""
    try:
        return socket.socket(fileno=int(descriptor))
    except (OSError, ValueError) as error:
        where = f"{LAUNCHED_ENV}={descriptor}"
        raise fault("GH2701", path=where, reason=error) from error


def connect(path: str) -> socket.socket:
    """Return a connection to a Unix socket; raises OSError."""
    trunk = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    trunk.settimeout(_REGISTRATION)  # a runtime that accepts no one would block a signal, too
    try:
        trunk.connect(path)
    except BaseException:
        trunk.close()
        raise
    return trunk


def _unreachable(path: str, error: OSError) -> GpuhookError:
    """Return GH2700 for a socket that does not exist, GH2701 for one that cannot be used."""
    try:
        is_socket = stat.S_ISSOCK(os.stat(path).st_mode)
    except OSError:
        is_socket = error.errno != errno.ENOENT
    if error.errno == errno.ENOENT:
        return fault("GH2700", path=path)
    reason = error.strerror or str(error) if is_socket else "it is not a socket"
    return fault("GH2701", path=path, reason=reason)


def lock(path: str) -> int:
    """Keep other instances from the runtime of a socket until the process ends.

    Returns the descriptor of the lock. Raises GH2702 if another process has it: the runtime would
    ask both, and each create would fail, as both set the same variables.
    """
    name = f"nri-{crc32(os.path.realpath(path).encode()):08x}"
    place = os.path.join(state.directory(), "locks", name)
    held = file_lock.open_lock(place)
    if not file_lock.is_locked(held, 0):
        os.close(held)
        raise fault("GH2702", path=path, lock=place)
    return held
