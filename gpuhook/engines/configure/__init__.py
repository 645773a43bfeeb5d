# SPDX-License-Identifier: Apache-2.0
"""Engines are configured: what is to be, which files change for it, and how it is taken back."""
