# SPDX-License-Identifier: Apache-2.0
"""Who uses which GPU of this node now."""
