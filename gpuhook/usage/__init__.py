# SPDX-License-Identifier: Apache-2.0
"""Which containers and processes use which GPU of this node."""
