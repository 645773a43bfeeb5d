# SPDX-License-Identifier: Apache-2.0
"""Time slices and compute modes of the node's GPUs."""
