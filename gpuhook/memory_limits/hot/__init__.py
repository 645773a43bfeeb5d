# SPDX-License-Identifier: Apache-2.0
"""Memory limits at a container's creation: the grant, and the variables that follow from it."""
