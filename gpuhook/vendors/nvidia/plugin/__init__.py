# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's part of the device plugin."""
