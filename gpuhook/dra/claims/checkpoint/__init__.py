# SPDX-License-Identifier: Apache-2.0
"""What the driver has prepared, on the disk: it survives kills, damage and power loss."""
