# SPDX-License-Identifier: Apache-2.0
"""The meaning of requests for NVIDIA GPUs: capabilities, requirements, notes."""
