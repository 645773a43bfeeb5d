# SPDX-License-Identifier: Apache-2.0
"""Calls of generate-cdi for NVIDIA GPUs: their options, and the specs that they have written."""
