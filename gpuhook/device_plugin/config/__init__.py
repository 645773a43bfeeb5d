# SPDX-License-Identifier: Apache-2.0
"""The configuration of the device plugin: its file, options, what may be wrong with it."""
