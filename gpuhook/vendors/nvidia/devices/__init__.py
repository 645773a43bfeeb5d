# SPDX-License-Identifier: Apache-2.0
"""The driver's device nodes: GPUs, MIG instances, DRM."""
