# SPDX-License-Identifier: Apache-2.0
"""The services between the kubelet and drivers: method paths and message classes.

Sources: dra.proto, pluginregistration.proto.
"""

from __future__ import annotations

from gpuhook.device_plugin.api.services import Method
from gpuhook.dra.api import dra_pb2 as dra
from gpuhook.dra.api import pluginregistration_pb2 as registration

PLUGIN_TYPE = "DRAPlugin"
REGISTRATION = "pluginregistration.Registration"
GET_INFO = Method(f"/{REGISTRATION}/GetInfo", registration.InfoRequest, registration.PluginInfo)
NOTIFY = Method(
    f"/{REGISTRATION}/NotifyRegistrationStatus",
    registration.RegistrationStatus,
    registration.RegistrationStatusResponse,
)
# The kubelet uses the first version that it knows: the newest one first. 1.32 and 1.33 know
# v1beta1 only.
VERSIONS = ("v1", "v1beta1")


def supported(version: str) -> str:
    """Return a version of the service as GetInfo names it."""
    return f"{version}.DRAPlugin"


def service(version: str) -> str:
    """Return the full name of the service in a version."""
    return f"k8s.io.kubelet.pkg.apis.dra.{version}.DRAPlugin"


def prepare(
    version: str,
) -> Method[dra.NodePrepareResourcesRequest, dra.NodePrepareResourcesResponse]:
    """Return the method NodePrepareResources of a version."""
    return Method(
        f"/{service(version)}/NodePrepareResources",
        dra.NodePrepareResourcesRequest,
        dra.NodePrepareResourcesResponse,
    )


def unprepare(
    version: str,
) -> Method[dra.NodeUnprepareResourcesRequest, dra.NodeUnprepareResourcesResponse]:
    """Return the method NodeUnprepareResources of a version."""
    return Method(
        f"/{service(version)}/NodeUnprepareResources",
        dra.NodeUnprepareResourcesRequest,
        dra.NodeUnprepareResourcesResponse,
    )
