# SPDX-License-Identifier: Apache-2.0
"""Memory limits set in the driver for a container's cgroup."""
