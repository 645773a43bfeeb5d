# SPDX-License-Identifier: Apache-2.0
"""The names of devices: those of the node, other spellings, and short forms."""
