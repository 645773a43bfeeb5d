# SPDX-License-Identifier: Apache-2.0
"""Running containers: find one, its processes, its runtime's state."""
