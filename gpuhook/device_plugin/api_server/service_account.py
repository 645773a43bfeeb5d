# SPDX-License-Identifier: Apache-2.0
"""The credentials of a pod for the API server.

They are apart from client.py: most plugins have no access, and need not load an HTTP client.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SERVICE_ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


@dataclass(frozen=True, slots=True)
class ApiAccess:
    """The API server's address and the credentials. `scheme`: https or http."""

    host: str
    port: int
    token_path: str = f"{SERVICE_ACCOUNT}/token"
    ca_path: str = f"{SERVICE_ACCOUNT}/ca.crt"
    scheme: str = "https"


def in_cluster(environ: Mapping[str, str], directory: str = SERVICE_ACCOUNT) -> ApiAccess | None:
    """Return the access of a pod, None outside of a pod or without a token."""
    host = environ.get("KUBERNETES_SERVICE_HOST", "")
    port = environ.get("KUBERNETES_SERVICE_PORT", "443")
    token = os.path.join(directory, "token")
    if not host or not port.isdecimal() or not os.path.exists(token):
        return None
    return ApiAccess(host, int(port), token, os.path.join(directory, "ca.crt"))
