# SPDX-License-Identifier: Apache-2.0
"""The device cgroup of a running container, v1 and v2."""
