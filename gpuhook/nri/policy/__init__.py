# SPDX-License-Identifier: Apache-2.0
"""Which requests for GPUs the NRI plugin accepts, by their origin and by the node's settings."""
