# SPDX-License-Identifier: Apache-2.0
"""The calls of the API server for the slices of one driver on one node. All of them block."""

from __future__ import annotations

from urllib.parse import quote

from gpuhook.device_plugin.api_server.client import (
    METADATA_ONLY,
    Purpose,
    StatusError,
    is_forbidden,
    is_missing,
)
from gpuhook.dra.api.resource_api import GROUP
from gpuhook.dra.slices import server_features, slice_document
from gpuhook.dra.slices.server_features import COUNTERS, ServerFeatures
from gpuhook.dra.slices.slice_plan import StoredSlice
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import fastjson

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from gpuhook.device_plugin.api_server.client import ApiServer, Changes

WATCH_SECONDS = 300
_FEATURE = "the ResourceSlices of this node"
_NO_DRY_RUN = (400, 405, 422, 500)  # as of a webhook that supports none


class SliceClient:
    """The slices of `driver` on `node`; `features` are those of the server, once probed."""

    def __init__(self, server: ApiServer, driver: str, node: str) -> None:
        self._server = server
        self._selector = {"fieldSelector": f"spec.nodeName={node},spec.driver={driver}"}
        self.driver = driver
        self.node = node
        self.features = ServerFeatures()

    def probe(self) -> ServerFeatures:
        """Return what the server knows. Raises GH2611 without the API, and GH1862 to GH1864."""
        purpose = Purpose("get", "version", _FEATURE)
        minor = server_features.minor_version(self._server.get("/version", purpose))
        try:
            found = self._server.get(f"/apis/{GROUP}", purpose)
        except GpuhookError as error:
            if is_missing(error):
                raise self._absent(minor) from error
            raise
        version = server_features.served_version(found)
        if version is None:
            raise self._absent(minor)
        self.features = self._with_gates(ServerFeatures(version, minor))
        return self.features

    def _absent(self, minor: int | None) -> GpuhookError:
        return fault("GH2611", version="unknown" if minor is None else f"1.{minor}")

    def _with_gates(self, features: ServerFeatures) -> ServerFeatures:
        """Return the features with the gates that a dry run shows."""
        self.features = features
        spec = server_features.probe_spec(self.driver, self.node, features)
        try:
            stored = self.create(0, spec, {}, "?dryRun=All")
        except GpuhookError as error:
            cause = error.__cause__
            if isinstance(cause, StatusError) and cause.status in _NO_DRY_RUN:
                # What a real slice loses is seen later, and overlapping devices must not wait.
                return features.without([COUNTERS])
            raise
        return features.without(server_features.dropped_gates(spec, stored.spec))

    def owner(self) -> dict[str, Any]:
        """Return the reference to the Node, with which the slices end; {} without permission."""
        purpose = Purpose("get", "nodes", f"the owner of {_FEATURE}")
        try:
            path = f"/api/v1/nodes/{quote(self.node, safe='')}"
            found = self._server.get(path, purpose, accept=METADATA_ONLY)
        except GpuhookError as error:
            if is_forbidden(error):
                return {}
            raise
        uid = fastjson.fields(found, "metadata").get("uid", "")
        head = {"apiVersion": "v1", "kind": "Node", "name": self.node}
        return {**head, "uid": uid, "controller": True}

    def list(self) -> tuple[list[StoredSlice], str]:
        """Return the stored slices, and the resourceVersion for a watch."""
        found = self._server.get(self._path(), _purpose("list"), self._selector)
        version = fastjson.fields(found, "metadata").get("resourceVersion") or ""
        return [self.stored(one) for one in fastjson.array(found, "items")], str(version)

    def watch(self, version: str) -> Changes:
        """Return the changes since a version. Raises GoneError if it is too old."""
        query = {**self._selector, "resourceVersion": version}
        path, purpose = self._path(), _purpose("watch")
        return self._server.watch(path, purpose, query, WATCH_SECONDS, "application/json")

    def create(
        self, number: int, spec: Mapping[str, Any], owner: dict[str, Any], query: str = ""
    ) -> StoredSlice:
        """Create the slice with this number of the layout."""
        metadata: dict[str, Any] = {"generateName": f"{number:05x}-{self.driver}-{self.node}-"}
        if owner:
            metadata["ownerReferences"] = [owner]
        body = self._body(metadata, spec)
        return self.stored(self._server.create(self._path() + query, body, _purpose("create")))

    def update(
        self, one: StoredSlice, spec: Mapping[str, Any], owner: dict[str, Any]
    ) -> StoredSlice:
        """Replace the spec of a slice; a conflict if another client has changed it."""
        metadata = {**one.metadata, **({"ownerReferences": [owner]} if owner else {})}
        body, path = self._body(metadata, spec), self._path(one.name)
        return self.stored(self._server.replace(path, body, _purpose("update")))

    def delete(self, one: StoredSlice) -> None:
        """Delete a slice as it is known; it may be gone already."""
        known = {"uid": one.uid, "resourceVersion": one.version}
        try:
            self._server.delete(self._path(one.name), _purpose("delete"), known)
        except GpuhookError as error:
            if not is_missing(error):
                raise

    def stored(self, one: Any) -> StoredSlice:
        """Return an object of the server."""
        spec = slice_document.stored_spec(fastjson.fields(one, "spec"), self.features.version)
        return StoredSlice(fastjson.fields(one, "metadata"), spec)

    def _path(self, name: str = "") -> str:
        base = f"/apis/{GROUP}/{self.features.version}/resourceslices"
        return f"{base}/{name}" if name else base

    def _body(self, metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> dict[str, Any]:
        version = self.features.version
        head = {"apiVersion": f"{GROUP}/{version}", "kind": "ResourceSlice"}
        return {**head, "metadata": metadata, "spec": slice_document.wire_spec(spec, version)}


def _purpose(verb: str) -> Purpose:
    return Purpose(verb, "resourceslices", _FEATURE, GROUP)


def withdraw(client: SliceClient) -> int:
    """Delete all slices, so that no pod gets a device; return their number.

    The driver must not run, since it publishes them again.
    """
    client.probe()
    slices, _ = client.list()
    for one in slices:
        client.delete(one)
    return len(slices)
