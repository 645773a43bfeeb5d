# SPDX-License-Identifier: Apache-2.0
"""TOML files edited so that every other byte stays."""
