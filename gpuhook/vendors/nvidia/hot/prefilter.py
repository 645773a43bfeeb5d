# SPDX-License-Identifier: Apache-2.0
"""The words by which a container that asks for nothing of ours is known at a glance.

All that is loaded of this vendor for most containers.
"""

from __future__ import annotations

# A config.json without any of these asks for nothing of ours.
MARKS = (
    b"NVIDIA_VISIBLE_DEVICES",
    b'"CUDA_VERSION=',
    b"nvidia-container-devices",
    b"gpuhook-hook",
    b"gpuhook/memory/",
    b"io.gpuhook.record",
)
