# SPDX-License-Identifier: Apache-2.0
"""Compares the GPU parts of running containers with those that gpuhook would add."""
