# SPDX-License-Identifier: Apache-2.0
"""The Kubernetes API server, spoken to with the pod's service account and the standard library.

Each call is a connection of its own: there are a few an hour. Calls block, so the plugin makes
them in a thread. Nothing of the plugin needs the API server: what is refused or not there turns
one feature off.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from dataclasses import dataclass
from urllib.parse import urlencode

from gpuhook.errors import GpuhookError, RefusedError, fault
from gpuhook.host import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from gpuhook.device_plugin.api_server.service_account import ApiAccess

TIMEOUT = 10.0  # seconds, for each step of a call
MERGE_PATCH = "application/merge-patch+json"
# The metadata alone: a Node's status, which changes every few minutes, is most of its size.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_MAX_SIZE = 64 << 20
_MAX_LINE = 4 << 20
_REFUSED, _GONE = 403, 410


@dataclass(frozen=True, slots=True)
class Purpose:
    """What a call is for: the rule of RBAC that it needs, and what is lost without it."""

    verb: str  # "patch"
    resource: str  # "nodes"
    feature: str  # "labels of the node"


class GoneError(Exception):
    """The resourceVersion of a watch is too old: the object is to be read anew."""


class ApiServer:
    """Calls of the API server. They raise GH1862 where it cannot be spoken to, GH1863 where a
    permission is missing, GH1864 for another refusal.
    """  # noqa: D205 # the codes belong to the first sentence

    def __init__(self, access: ApiAccess, timeout: float = TIMEOUT) -> None:
        self._access = access
        self._timeout = timeout
        self._context: ssl.SSLContext | None = None
        self._context_of: tuple[int, int] | None = None

    def get(
        self,
        path: str,
        purpose: Purpose,
        query: Mapping[str, str] | None = None,
        accept: str = "application/json",
    ) -> dict[str, Any]:
        """Return the object or list at `path`."""
        return self._call("GET", _with(path, query), purpose, {"Accept": accept})

    def create(self, path: str, body: Mapping[str, Any], purpose: Purpose) -> dict[str, Any]:
        """Create an object, and return it as the server has it."""
        return self._call("POST", path, purpose, {"Content-Type": "application/json"}, body)

    def patch(self, path: str, body: Mapping[str, Any], purpose: Purpose) -> dict[str, Any]:
        """Change an object by a merge patch (RFC 7386), and return it."""
        return self._call("PATCH", path, purpose, {"Content-Type": MERGE_PATCH}, body)

    def watch(self, path: str, purpose: Purpose, query: Mapping[str, str], seconds: int) -> Changes:
        """Return the changes of what `query` selects; the server ends them after `seconds`.

        Raises GoneError where the resourceVersion of `query` is too old.
        """
        asked = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        connection = self._connection()
        try:
            connection.connect()
            line: socket.socket = connection.sock  # the connection forgets it if the server closes
            answer = self._sent(connection, "GET", _with(path, asked), {"Accept": METADATA_ONLY})
            _check(answer, purpose)
            line.settimeout(seconds + self._timeout)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._trouble(error) from error
        except BaseException:
            connection.close()
            raise
        return Changes(connection, line, answer, self._trouble)

    def _call(
        self,
        method: str,
        path: str,
        purpose: Purpose,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        connection = self._connection()
        try:
            answer = self._sent(connection, method, path, headers, body)
            _check(answer, purpose)
            return documents.parse_json_object(answer.read(_MAX_SIZE))
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._trouble(error) from error
        finally:
            connection.close()

    def _sent(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
    ) -> http.client.HTTPResponse:
        sent = {"User-Agent": "gpuhook", "Authorization": f"Bearer {self._token()}", **headers}
        connection.request(method, path, None if body is None else json.dumps(body), sent)
        return connection.getresponse()

    def _token(self) -> str:
        """Return the token as it is now: the kubelet replaces it every hour or so."""
        with open(self._access.token_path, encoding="ascii") as file:
            return file.read().strip()

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._access.host, self._access.port
        if self._access.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=self._timeout)
        try:
            return http.client.HTTPSConnection(
                host, port, timeout=self._timeout, context=self._trust()
            )
        except (OSError, ValueError) as error:
            raise self._trouble(error) from error

    def _trust(self) -> ssl.SSLContext:
        """Return the context that trusts the cluster's CA, made anew when its file has changed."""
        found = os.stat(self._access.ca_path)
        version = (found.st_ino, found.st_mtime_ns)
        if self._context is None or version != self._context_of:
            context = ssl.create_default_context(cafile=self._access.ca_path)
            # Python 3.13 demands extensions that the CAs of many clusters do not have.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._context, self._context_of = context, version
        return self._context

    def _trouble(self, error: Exception) -> GpuhookError:
        where = f"{self._access.host}:{self._access.port}"
        return fault("GH1862", where=where, reason=str(error) or type(error).__name__)


class Changes:
    """The changes of a watch, one after the other; a context manager that closes it."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        line: socket.socket,
        answer: http.client.HTTPResponse,
        trouble: Callable[[Exception], GpuhookError],
    ) -> None:
        self._connection = connection
        self._socket = line
        self._answer = answer
        self._trouble = trouble

    def next(self) -> dict[str, Any] | None:
        """Return the next change, {"type", "object"}; None at the end. Blocks.

        Raises GoneError where the server has forgotten the resourceVersion, and GH1862.
        """
        try:
            line = self._answer.readline(_MAX_LINE)
            if not line.strip():
                return None
            change = documents.parse_json_object(line)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._trouble(error) from error
        if change.get("type") == "ERROR":
            status = change.get("object")
            if isinstance(status, dict) and status.get("code") == _GONE:
                raise GoneError
            raise self._trouble(ValueError(_message(status)))
        return change

    def interrupt(self) -> None:
        """End a next() that another thread is waiting in."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return  # it has ended already

    def close(self) -> None:
        """Close the connection."""
        self._answer.close()
        self._connection.close()


def is_forbidden(error: GpuhookError) -> bool:
    """Return whether `error` is that a permission is missing: asking again is of no use."""
    return isinstance(error, RefusedError)


def _with(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _check(answer: http.client.HTTPResponse, purpose: Purpose) -> None:
    if answer.status < http.client.MULTIPLE_CHOICES:
        return
    if answer.status == _GONE and purpose.verb == "watch":
        raise GoneError
    message = _message(_document(answer.read(_MAX_LINE))) or answer.reason
    needed = {"verb": purpose.verb, "resource": purpose.resource, "feature": purpose.feature}
    if answer.status == _REFUSED:
        raise fault("GH1863", **needed)
    raise fault("GH1864", **needed, status=answer.status, reason=message)


def _document(data: bytes) -> object:
    try:
        return documents.parse_json(data)
    except ValueError:
        return None


def _message(status: object) -> str:
    """Return what a Status object of the API says, "" where it says nothing."""
    found = status.get("message") if isinstance(status, dict) else None
    return found if isinstance(found, str) else ""
