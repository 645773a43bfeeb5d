# SPDX-License-Identifier: Apache-2.0
"""The part of a vendor in the device plugin's snapshot."""
