# SPDX-License-Identifier: Apache-2.0
"""The API group resource.k8s.io, and its claims in the newest version that the server has."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from gpuhook.device_plugin.api_server import client
from gpuhook.errors import GpuhookError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from gpuhook.device_plugin.api_server.client import ApiServer, Purpose
    from gpuhook.dra.claims.claim import ClaimName

GROUP = "resource.k8s.io"
VERSIONS = ("v1", "v1beta2", "v1beta1")  # the preferred one first


class ClaimApi:
    """The ResourceClaims of a cluster; the versions differ in the specification only."""

    def __init__(self, server: ApiServer) -> None:
        self._server = server
        self._versions: tuple[str, ...] = VERSIONS

    def get(self, name: ClaimName, purpose: Purpose) -> dict[str, Any] | None:
        """Return the claim with this name, None if there is none; raises other faults."""
        for version in self._versions:
            try:
                found = self._server.get(_path(version, name), purpose)
            except GpuhookError as error:
                if not client.is_missing(error):
                    raise
            else:
                self._versions = (version, *(one for one in VERSIONS if one != version))
                return found
        return None

    def replace_status(self, name: ClaimName, changed: dict[str, Any], purpose: Purpose) -> None:
        """Replace the status of a claim from get(), in the same version."""
        version = str(changed.get("apiVersion", "")).rpartition("/")[2] or self._versions[0]
        self._server.replace(f"{_path(version, name)}/status", changed, purpose)


def _path(version: str, name: ClaimName) -> str:
    namespace, own = quote(name.namespace, safe=""), quote(name.name, safe="")
    return f"/apis/{GROUP}/{version}/namespaces/{namespace}/resourceclaims/{own}"
