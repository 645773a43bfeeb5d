# SPDX-License-Identifier: Apache-2.0
"""The health of a driver's devices: taints of the pool, and the kubelet's stream."""
