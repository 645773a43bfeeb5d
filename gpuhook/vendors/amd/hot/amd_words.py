# SPDX-License-Identifier: Apache-2.0
"""The variables and kinds with which containers request AMD GPUs."""

from __future__ import annotations

from gpuhook.request.parse import Vocabulary

VENDOR = "amd.com"
KIND = VENDOR + "/gpu"
VOCABULARY = Vocabulary(
    devices_env="AMD_VISIBLE_DEVICES",
    capabilities_env="",
    replicas_env="GPUHOOK_REPLICAS",
    mount_prefix="/var/run/amd-container-devices",
    image_version_env="",
    image_requirement_env="",
    default_kind=KIND,
    memory_request_env="AMD_GPU_MEMORY_REQUEST",  # MiB
    memory_limit_env="AMD_GPU_MEMORY_LIMIT",
    memory_prefix="/var/run/gpuhook/memory",
    hints_env="GPUHOOK_MEMORY_HINTS",
    extras={},
    extra_mounts={},
    privileged_kinds=(),
)
