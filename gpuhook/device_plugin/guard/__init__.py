# SPDX-License-Identifier: Apache-2.0
"""Ends processes of containers above a memory limit that the driver does not enforce."""
