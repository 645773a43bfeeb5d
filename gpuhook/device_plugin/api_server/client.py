# SPDX-License-Identifier: Apache-2.0
"""A client of the Kubernetes API server with the pod's service account.

It uses the standard library: the official client would take 126 MB. Each call has its own
connection, since there are only a few an hour. Calls block, so the plugin makes them in a thread.
The API server is optional: without it, or without a permission, one feature is off.
"""

from __future__ import annotations

import http.client
import json
import os
import socket
import ssl
from dataclasses import dataclass
from http import HTTPStatus
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
# Only the metadata: most of a Node's size is its status, which changes every few minutes.
METADATA_ONLY = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json"
_MAX_SIZE = 64 << 20
_MAX_LINE = 4 << 20


@dataclass(frozen=True, slots=True)
class Purpose:
    """The RBAC rule that a call needs, and the feature that is off without it."""

    verb: str  # "patch"
    resource: str  # "nodes"
    feature: str  # "labels of the node"
    group: str = ""  # "resource.k8s.io"


class GoneError(Exception):
    """The resourceVersion of a watch is too old: the object must be read again."""


class StatusError(Exception):
    """The HTTP status of a refused call: the cause of GH1863 and GH1864."""

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.status = status


class ApiServer:
    """Calls of the API server.

    They raise GH1862 if it cannot be reached, GH1863 without the permission, GH1864 if it refuses
    the call for another reason, for which there are is_missing() and is_conflict().
    """

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
        return self._call("GET", _with(path, query), purpose, {"Accept": accept})

    def create(self, path: str, body: Mapping[str, Any], purpose: Purpose) -> dict[str, Any]:
        """Create an object, and return the server's version of it."""
        return self._call("POST", path, purpose, {"Content-Type": "application/json"}, body)

    def patch(self, path: str, body: Mapping[str, Any], purpose: Purpose) -> dict[str, Any]:
        """Change an object by a merge patch (RFC 7386), and return it."""
        return self._call("PATCH", path, purpose, {"Content-Type": MERGE_PATCH}, body)

    def replace(self, path: str, body: Mapping[str, Any], purpose: Purpose) -> dict[str, Any]:
        """Replace an object, and return the server's version of it.

        If `body` has a resourceVersion that is not the current one, it is a conflict.
        """
        return self._call("PUT", path, purpose, {"Content-Type": "application/json"}, body)

    def delete(
        self, path: str, purpose: Purpose, preconditions: Mapping[str, str] | None = None
    ) -> dict[str, Any]:
        """Delete an object, and return the server's last version of it or a Status.

        If it does not have the uid and resourceVersion in `preconditions`, it is a conflict.
        """
        if preconditions is None:
            return self._call("DELETE", path, purpose, {"Accept": "application/json"})
        body = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": preconditions}
        return self._call("DELETE", path, purpose, {"Content-Type": "application/json"}, body)

    def watch(
        self,
        path: str,
        purpose: Purpose,
        query: Mapping[str, str],
        seconds: int,
        accept: str = METADATA_ONLY,
    ) -> Changes:
        """Watch the objects that `query` selects; the server ends the watch after `seconds`.

        Raises GoneError if the resourceVersion of `query` is too old.
        """
        watching = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        connection = self._connection()
        try:
            connection.connect()
            line: socket.socket = (
                connection.sock
            )  # the connection drops its reference if the server closes
            answer = self._sent(connection, "GET", _with(path, watching), {"Accept": accept})
            _check(answer, purpose)
            line.settimeout(seconds + self._timeout)
        except (OSError, http.client.HTTPException) as error:
            connection.close()
            raise self._unreachable(error) from error
        except BaseException:
            connection.close()
            raise
        return Changes(connection, line, answer, self._unreachable)

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
            raise self._unreachable(error) from error
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
        """Return the current token: the kubelet replaces it about every hour."""
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
            raise self._unreachable(error) from error

    def _trust(self) -> ssl.SSLContext:
        """Return the context that trusts the cluster's CA, created again when its file changes."""
        status = os.stat(self._access.ca_path)
        version = (status.st_ino, status.st_mtime_ns)
        if self._context is None or version != self._context_of:
            context = ssl.create_default_context(cafile=self._access.ca_path)
            # Python 3.13 requires extensions that the CAs of many clusters lack.
            context.verify_flags &= ~ssl.VERIFY_X509_STRICT
            self._context, self._context_of = context, version
        return self._context

    def _unreachable(self, error: Exception) -> GpuhookError:
        where = f"{self._access.host}:{self._access.port}"
        return fault("GH1862", where=where, reason=str(error) or type(error).__name__)


class Changes:
    """The changes of a watch, one after the other."""

    def __init__(
        self,
        connection: http.client.HTTPConnection,
        line: socket.socket,
        answer: http.client.HTTPResponse,
        unreachable: Callable[[Exception], GpuhookError],
    ) -> None:
        self._connection = connection
        self._socket = line
        self._answer = answer
        self._unreachable = unreachable

    def next(self) -> dict[str, Any] | None:
        """Return the next change, {"type", "object"}; None at the end. Blocks.

        Raises GoneError if the server no longer has the resourceVersion, and GH1862.
        """
        try:
            line = self._answer.readline(_MAX_LINE)
            if not line.strip():
                return None
            change = documents.parse_json_object(line)
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise self._unreachable(error) from error
        if change.get("type") == "ERROR":
            status = change.get("object")
            if isinstance(status, dict) and status.get("code") == HTTPStatus.GONE:
                raise GoneError
            raise self._unreachable(ValueError(_message(status)))
        return change

    def interrupt(self) -> None:
        """End a next() that waits in another thread."""
        try:
            socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
        except OSError:
            return  # it has exited already

    def close(self) -> None:
        self._answer.close()
        self._connection.close()


def is_forbidden(error: GpuhookError) -> bool:
    """Return whether a permission is missing, so that retries are useless."""
    return isinstance(error, RefusedError)


def is_missing(error: GpuhookError) -> bool:
    """Return whether the object, or its kind in this version of the API, does not exist."""
    return _status(error) == HTTPStatus.NOT_FOUND


def is_conflict(error: GpuhookError) -> bool:
    """Return whether another version of the object, or an object of that name, exists."""
    return _status(error) == HTTPStatus.CONFLICT


def _status(error: GpuhookError) -> int | None:
    cause = error.__cause__
    return cause.status if isinstance(cause, StatusError) else None


def _with(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _check(answer: http.client.HTTPResponse, purpose: Purpose) -> None:
    if answer.status < http.client.MULTIPLE_CHOICES:
        return
    if answer.status == HTTPStatus.GONE and purpose.verb == "watch":
        raise GoneError
    message = _message(_document(answer.read(_MAX_LINE))) or answer.reason
    needed = {"verb": purpose.verb, "resource": purpose.resource, "feature": purpose.feature}
    cause = StatusError(answer.status)
    if answer.status == HTTPStatus.FORBIDDEN:
        raise fault("GH1863", **needed, group=purpose.group) from cause
    raise fault("GH1864", **needed, status=answer.status, reason=message) from cause


def _document(data: bytes) -> object:
    try:
        return documents.parse_json(data)
    except ValueError:
        return None


def _message(status: object) -> str:
    """Return the message of a Status object of the API, "" without one."""
    message = status.get("message") if isinstance(status, dict) else None
    return message if isinstance(message, str) else ""
