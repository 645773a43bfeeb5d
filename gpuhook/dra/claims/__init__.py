# SPDX-License-Identifier: Apache-2.0
"""Claims that pods use on this node: from the allocation to the CDI spec, and back."""
