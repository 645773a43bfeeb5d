# SPDX-License-Identifier: Apache-2.0
"""Byte patterns of containers that concern gpuhook; a config.json without any is not parsed.

The variables are parsed in request/parse.py. For most containers, this is the only module of the
vendors that is loaded.
"""

from __future__ import annotations

# A config.json without any of these requests nothing from gpuhook.
MARKS = (
    b"NVIDIA_VISIBLE_DEVICES",
    b'"CUDA_VERSION=',
    b"nvidia-container-devices",
    b"gpuhook-hook",
    b"gpuhook/memory/",
    b"io.gpuhook.record",
    b"AMD_VISIBLE_DEVICES",
    b"amd-container-devices",
)
# A container without any of these has only a plan of the first vendor: see further_nodes.py.
FURTHER = (
    "AMD_VISIBLE_DEVICES",
    "AMD_GPU_MEMORY_",
    "amd-container-devices",
    "amd.com/",
    "DOCKER_RESOURCE_",
)
