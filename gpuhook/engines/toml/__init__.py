# SPDX-License-Identifier: Apache-2.0
"""Edits of TOML files that keep all other lines."""
