# SPDX-License-Identifier: Apache-2.0
"""The configuration of the device plugin: keys, options, sources and findings."""
