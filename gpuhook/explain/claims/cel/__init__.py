# SPDX-License-Identifier: Apache-2.0
"""CEL selectors of devices, by an optional library."""
