# SPDX-License-Identifier: Apache-2.0
"""Memory limits at a container's creation: what is granted, and which environment follows."""
