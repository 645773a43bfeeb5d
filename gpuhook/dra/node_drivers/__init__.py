# SPDX-License-Identifier: Apache-2.0
"""The drivers of this node as another process sees them: their status, and their end."""
