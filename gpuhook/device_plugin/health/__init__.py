# SPDX-License-Identifier: Apache-2.0
"""Which GPUs are unhealthy, and the evidence that they are healthy again."""
