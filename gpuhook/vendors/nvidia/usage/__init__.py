# SPDX-License-Identifier: Apache-2.0
"""The usage of NVIDIA's GPUs and MIG instances: devices, memory, processes."""
