# SPDX-License-Identifier: Apache-2.0
"""The services that the kubelet calls: the registration of the driver, and its claims.

No request ends the process, whatever its bytes are. A failure of one claim is in its entry of the
response: a failed call would fail all claims of a pod.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol

import grpc

from gpuhook.device_plugin.kubelet import call_status
from gpuhook.dra.api import dra_pb2, dra_services
from gpuhook.dra.api import pluginregistration_pb2 as registration
from gpuhook.dra.claims.claim import ClaimName
from gpuhook.errors import GpuhookError, printable
from gpuhook.host.logs import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from gpuhook.device_plugin.api.services import Context, Method, Request, Response
    from gpuhook.device_plugin.metrics.counters import Counters
    from gpuhook.dra.claims.prepared_claim import PreparedDevice
    from gpuhook.dra.health.health_stream import HealthStream
    from gpuhook.dra.kubelet.status_service import StatusService


class ClaimBackend(Protocol):
    """What answers the calls for claims."""

    async def prepare(
        self, names: Sequence[ClaimName]
    ) -> dict[str, tuple[PreparedDevice, ...] | Exception]:
        """Return the devices of each claim by UID, or why it is not prepared."""

    async def unprepare(self, names: Sequence[ClaimName]) -> dict[str, Exception | None]:
        """Return None for each claim by UID, or why it is not unprepared."""


class RegistrationService:
    """Answers the kubelet's plugin manager, for a driver that listens on `endpoint`.

    `versions` are the services that the endpoint has, the newest of each kind first. `outcome` is
    the kubelet's last notification: "registered", the error, or "" before the first one.
    """

    def __init__(
        self, driver: str, endpoint: str, versions: Iterable[str], counters: Counters
    ) -> None:
        self.name = driver
        self._endpoint = endpoint
        self._versions = tuple(versions)
        self._counters = counters
        self.outcome = ""

    def rpc_handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the handler of the service."""
        methods = {
            dra_services.GET_INFO.name: _unary(dra_services.GET_INFO, self._get_info),
            dra_services.NOTIFY.name: _unary(dra_services.NOTIFY, self._notify),
        }
        return (grpc.method_handlers_generic_handler(dra_services.REGISTRATION, methods),)

    async def _get_info(self, _request: registration.InfoRequest) -> registration.PluginInfo:
        return registration.PluginInfo(
            type=dra_services.PLUGIN_TYPE,
            name=self.name,
            endpoint=self._endpoint,
            supported_versions=self._versions,
        )

    async def _notify(
        self, status: registration.RegistrationStatus
    ) -> registration.RegistrationStatusResponse:
        """Log the outcome. The kubelet tries a failed registration again."""
        outcome = "registered" if status.plugin_registered else "failed"
        self.outcome = outcome if status.plugin_registered else printable(status.error)
        if status.plugin_registered:
            logger().info("registered", driver=self.name, socket=self._endpoint)
        else:
            logger().error(
                "the kubelet has not registered the driver",
                driver=self.name,
                reason=printable(status.error),
            )
        self._counters.count("registrations", self.name, outcome)
        return registration.RegistrationStatusResponse()


class ClaimService:
    """Answers the calls for claims, in all versions of the service.

    `others` are further services at the same socket.
    """

    def __init__(
        self,
        driver: str,
        calls: ClaimBackend,
        counters: Counters,
        others: Iterable[HealthStream | StatusService] = (),
    ) -> None:
        self.name = driver
        self._others = tuple(others)
        self._calls = calls
        self._counters = counters

    def rpc_handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Return the handlers of all versions."""
        others = (handler for one in self._others for handler in one.rpc_handlers())
        return (*map(self._handler, dra_services.VERSIONS), *others)

    def _handler(self, version: str) -> grpc.GenericRpcHandler:
        prepare, unprepare = dra_services.prepare(version), dra_services.unprepare(version)
        methods = {
            prepare.name: _unary(prepare, self._prepare),
            unprepare.name: _unary(unprepare, self._unprepare),
        }
        return grpc.method_handlers_generic_handler(dra_services.service(version), methods)

    async def _prepare(
        self, request: dra_pb2.NodePrepareResourcesRequest
    ) -> dra_pb2.NodePrepareResourcesResponse:
        begun = time.perf_counter()
        answers = await self._calls.prepare(_names(request.claims))
        self._report("claim_prepare", answers, time.perf_counter() - begun)
        claims = {uid: _prepared(answer) for uid, answer in answers.items()}
        return dra_pb2.NodePrepareResourcesResponse(claims=claims)

    async def _unprepare(
        self, request: dra_pb2.NodeUnprepareResourcesRequest
    ) -> dra_pb2.NodeUnprepareResourcesResponse:
        begun = time.perf_counter()
        answers = await self._calls.unprepare(_names(request.claims))
        self._report("claim_unprepare", answers, time.perf_counter() - begun)
        claims = {
            uid: dra_pb2.NodeUnprepareResourceResponse(error=_error(answer))
            for uid, answer in answers.items()
        }
        return dra_pb2.NodeUnprepareResourcesResponse(claims=claims)

    def _report(self, call: str, answers: Mapping[str, object | Exception], seconds: float) -> None:
        """Log the failures, and count the claims."""
        failed = {uid: one for uid, one in answers.items() if isinstance(one, Exception)}
        for uid, error in failed.items():
            details = {"driver": self.name, "call": call, "uid": printable(uid)}
            if isinstance(error, GpuhookError):
                details |= {"code": error.code, "hint": error.hint}
                logger().warning(error.message, **details)
            else:
                logger().error("failed", **details, exc_info=error)
        self._counters.count("claims", self.name, call, "done", by=len(answers) - len(failed))
        self._counters.count("claims", self.name, call, "failed", by=len(failed))
        self._counters.add_duration(call, self.name, seconds)


def _names(claims: Iterable[dra_pb2.Claim]) -> list[ClaimName]:
    return [ClaimName(one.namespace, one.name, one.uid) for one in claims]


def _prepared(
    answer: tuple[PreparedDevice, ...] | Exception,
) -> dra_pb2.NodePrepareResourceResponse:
    if isinstance(answer, Exception):
        return dra_pb2.NodePrepareResourceResponse(error=_error(answer))
    devices = [
        dra_pb2.Device(
            request_names=[one.request],
            pool_name=one.pool,
            device_name=one.device,
            cdi_device_ids=one.cdi_names,
            share_id=one.share_id or None,
        )
        for one in answer
    ]
    return dra_pb2.NodePrepareResourceResponse(devices=devices)


def _error(answer: object) -> str:
    """Return the error of an answer as one line, "" without one."""
    if isinstance(answer, GpuhookError):
        return call_status.sentence(answer)
    return f"gpuhook failed: {printable(repr(answer))}" if isinstance(answer, Exception) else ""


def _unary(
    method: Method[Request, Response], answer: Callable[[Request], Awaitable[Response]]
) -> grpc.RpcMethodHandler[bytes, bytes]:
    return grpc.unary_unary_rpc_method_handler(partial(_answer, method, answer))


async def _answer(
    method: Method[Request, Response],
    answer: Callable[[Request], Awaitable[Response]],
    data: bytes,
    context: Context,
) -> bytes:
    """Return the serialized response, or end the call with a status."""
    try:
        return (await answer(call_status.parsed(method, data))).SerializeToString()
    except GpuhookError as error:
        code, reason = call_status.code(error), call_status.sentence(error)
    except Exception as error:  # a bug ends the call, not the process
        code, reason = grpc.StatusCode.INTERNAL, f"gpuhook failed: {printable(repr(error))}"
        logger().error("failed", method=method.name, exc_info=error)
    return await context.abort(code, reason)
