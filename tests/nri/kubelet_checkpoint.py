# SPDX-License-Identifier: Apache-2.0
"""The kubelet's record of what device plugins answered, as its device manager writes it."""

from __future__ import annotations

import base64
import json
from pathlib import Path

from gpuhook.device_plugin.api.deviceplugin_pb2 import CDIDevice, ContainerAllocateResponse

NAME = "kubelet_internal_checkpoint"


def write(
    directory: Path,
    uid: str,
    container: str,
    *answers: dict[str, str],
    cdi_devices: tuple[str, ...] = (),
) -> None:
    """Write the record of one container, with the variables of an answer for each resource."""
    entries = [
        {
            "PodUID": uid,
            "ContainerName": container,
            "ResourceName": f"nvidia.com/gpu-{index}",
            "DeviceIDs": {"0": ["GPU-1"]},
            "AllocResp": base64.b64encode(
                ContainerAllocateResponse(
                    envs=envs, cdi_devices=[CDIDevice(name=name) for name in cdi_devices]
                ).SerializeToString()
            ).decode(),
        }
        for index, envs in enumerate(answers)
    ]
    data = {"PodDeviceEntries": entries, "RegisteredDevices": {}}
    new = directory / f"{NAME}.new"
    new.write_text(json.dumps({"Data": data, "Checksum": 1}), encoding="utf-8")
    new.rename(directory / NAME)
