# SPDX-License-Identifier: Apache-2.0
"""Where a driver is that is not installed into the root of its node."""

from __future__ import annotations

# The driver container of NVIDIA's GPU operator; GKE's installer.
OPERATOR, GKE = "/run/nvidia/driver", "/home/kubernetes/bin/nvidia"
OTHER_ROOTS = (OPERATOR, GKE)
# NixOS keeps everything in its store, and has links to what the system of now is made of.
NIXOS_LIBRARIES = "/run/opengl-driver/lib"
NIXOS_PROGRAMS = ("/run/current-system/sw/bin", "/run/wrappers/bin")
# What the toolkit container of the operator installs.
OPERATOR_TOOLKIT = "/usr/local/nvidia/toolkit"
