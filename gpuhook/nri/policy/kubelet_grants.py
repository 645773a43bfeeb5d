# SPDX-License-Identifier: Apache-2.0
"""What device plugins answered for a container, by the checkpoint of the kubelet's device manager.

NRI shows one list of variables: those of the image, the pod and the device plugin. The checkpoint
proves which of them the device plugin set. The kubelet writes it before it creates the container.
Source: kubernetes/pkg/kubelet/cm/devicemanager/checkpoint.
"""

from __future__ import annotations

import base64
import os
from dataclasses import dataclass, field

from gpuhook.device_plugin.config.launch_options import DEFAULT_SOCKET
from gpuhook.device_plugin.kubelet import device_checkpoint
from gpuhook.errors import GpuhookError, fault
from gpuhook.host.hot import files
from gpuhook.nri.wire.protobuf_wire import Message

TYPE_CHECKING = False
if TYPE_CHECKING:
    Holder = tuple[str, str]  # UID of the pod, name of the container

DIRECTORY = os.path.dirname(DEFAULT_SOCKET)


@dataclass(slots=True)
class KubeletGrants:
    """The answers of device plugins, read again when the kubelet has written the file.

    `directory` is the kubelet's directory of device plugins.
    """

    directory: str = DIRECTORY
    _version: str = ""
    _answers: dict[Holder, list[str]] = field(default_factory=dict)

    def variables(self, pod_uid: str, container: str) -> dict[str, str]:
        """Return the variables of a container's device plugins, {} without any.

        Raises GH2710 if the checkpoint cannot be read.
        """
        found = self._found(pod_uid, container)
        return {name: value for one in found for name, value in one.mapping(1).items()}

    def mounts(self, pod_uid: str, container: str) -> set[str]:
        """Return the paths in a container that its device plugins mount; raises GH2710."""
        found = self._found(pod_uid, container)
        return {os.path.normpath(mount.text(1)) for one in found for mount in one.messages(2)}

    def cdi_devices(self, pod_uid: str, container: str) -> list[str]:
        """Return the CDI names that its device plugins gave a container; raises GH2710."""
        found = self._found(pod_uid, container)
        return [name.text(1) for one in found for name in one.messages(5)]

    def _found(self, pod_uid: str, container: str) -> list[Message]:
        """Return the ContainerAllocateResponses for a container.

        A kubelet without a device plugin has no checkpoint; every kubelet makes its directory.
        """
        path = os.path.join(self.directory, device_checkpoint.NAME)
        try:
            version = files.version(os.stat(path))
            if version != self._version:
                self._answers, self._version = _answers(path), version
            found = self._answers.get((pod_uid, container), [])
            return [_whole(base64.b64decode(one, validate=True)) for one in found]
        except OSError as error:
            if isinstance(error, FileNotFoundError) and os.path.isdir(self.directory):
                return []
            raise fault("GH2710", path=path, reason=error.strerror or str(error)) from error
        except (GpuhookError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise fault("GH2710", path=path, reason=f"{type(error).__name__}: {error}") from error


def _whole(data: bytes) -> Message:
    """Return a response whose parts can be read, too; raises WireError."""
    found = Message(data)
    found.mapping(1)
    for number in (2, 5):
        for part in found.messages(number):
            part.text(1)
    return found


def _answers(path: str) -> dict[Holder, list[str]]:
    """Return the answers of device plugins by container; one has several with several resources."""
    data = device_checkpoint.content(path)
    found: dict[Holder, list[str]] = {}
    for one in data.get("PodDeviceEntries") or ():
        holder = (str(one["PodUID"]), str(one["ContainerName"]))
        found.setdefault(holder, []).append(one.get("AllocResp") or "")
    return found
