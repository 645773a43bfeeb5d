# SPDX-License-Identifier: Apache-2.0
"""Memory limits in the driver, for a container's cgroup."""
