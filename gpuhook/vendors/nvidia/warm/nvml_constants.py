# SPDX-License-Identifier: Apache-2.0
"""NVML's numbers for brands, architectures, modes and losses, as words. Source: nvml.h.

The brands are the words that NVIDIA_REQUIRE_* uses ("brand=geforcertx").
"""

from __future__ import annotations

BRANDS: dict[int | None, str] = {
    0: "unknown",  # NVIDIA's driver reports it for some GPUs, and images may require it
    1: "quadro",
    2: "tesla",
    3: "nvs",
    4: "grid",
    5: "geforce",
    6: "titan",
    7: "nvidiavapps",
    8: "nvidiavpc",
    9: "nvidiavcs",
    10: "nvidiavws",
    11: "nvidiacloudgaming",
    12: "quadrortx",
    13: "nvidiartx",
    14: "nvidia",
    15: "geforcertx",
    16: "titanrtx",
}

ARCHITECTURES: dict[int | None, str] = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}

# nvmlComputeMode_t: which processes may use a GPU at the same time.
COMPUTE_MODES: dict[int | None, str] = {
    0: "default",
    1: "exclusive-thread",
    2: "prohibited",
    3: "exclusive-process",
}

# nvmlEnableState_t, of the persistence mode: whether the driver keeps the GPU initialised.
PERSISTENCE_MODES: dict[int | None, str] = {0: "disabled", 1: "enabled"}

# The time slices of `nvidia-smi compute-policy --set-timeslice`; a slice's number is its position.
TIME_SLICES = ("default", "short", "medium", "long")

# nvmlReturn_enum: errors after which nothing that a GPU says can be relied on.
LOSSES: dict[int, str] = {
    8: "its power cables are not properly attached",
    11: "its interrupts are not received",
    15: "fallen off the bus or otherwise inaccessible",
    16: "needs a reset before it can be used again",
}
