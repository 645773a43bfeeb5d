# SPDX-License-Identifier: Apache-2.0
"""The ResourceSlices of a pool: their layout and limits, and how they are published."""
