# SPDX-License-Identifier: Apache-2.0
"""A simulation of the kubelet's pod resources service, with the pods of a test."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from gpuhook.device_plugin.api import podresources_pb2 as api
from gpuhook.device_plugin.api import services


def pod(  # the devices of one container
    namespace: str, name: str, container: str, resource: str, ids: Sequence[str]
) -> api.PodResources:
    """Return a pod of one container that holds devices of one resource."""
    devices = api.ContainerDevices(resource_name=resource, device_ids=ids)
    holder = api.ContainerResources(name=container, devices=[devices])
    return api.PodResources(namespace=namespace, name=name, containers=[holder])


def claiming_pod(  # the device of one claim, of one container
    namespace: str, name: str, claim: str, driver: str, device: str, share: str = ""
) -> api.PodResources:
    """Return a pod of a container "main" that uses a device of a claim."""
    resource = api.ClaimResource(
        driver_name=driver, pool_name="node-1", device_name=device, share_id=share
    )
    used = api.DynamicResource(
        claim_name=claim, claim_namespace=namespace, claim_resources=[resource]
    )
    holder = api.ContainerResources(name="main", dynamic_resources=[used])
    return api.PodResources(namespace=namespace, name=name, containers=[holder])


class PodResources:
    """The service on `socket`. `pods` can be set at any time."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: list[api.PodResources] = []
        self.calls = 0
        self._server: grpc.Server | None = None

    def __enter__(self) -> PodResources:  # noqa: PYI034  # Self is of Python 3.11
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Serve on the socket, and replace an existing one."""
        server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.so_reuseport", 0)])
        answers: dict[services.Method[Any, Any], Callable[[Any, grpc.ServicerContext], Any]] = {
            services.LIST_PODS: self._list,
        }
        handlers = {
            method.name: grpc.unary_unary_rpc_method_handler(
                answer,
                request_deserializer=method.request.FromString,
                response_serializer=method.response.SerializeToString,
            )
            for method, answer in answers.items()
        }
        service = services.LIST_PODS.path[1:].split("/")[0]
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        server.add_insecure_port(services.target(str(self.socket)))
        server.start()
        self._server = server

    def stop(self) -> None:
        """Stop, and remove the socket."""
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def _list(self, _request: object, _context: object) -> api.ListPodResourcesResponse:
        self.calls += 1
        return api.ListPodResourcesResponse(pod_resources=self.pods)
