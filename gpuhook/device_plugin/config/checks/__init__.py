# SPDX-License-Identifier: Apache-2.0
"""Contradictions between the values of a plugin configuration."""
