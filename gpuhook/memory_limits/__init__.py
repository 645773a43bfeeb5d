# SPDX-License-Identifier: Apache-2.0
"""Limits of a container's GPU memory: set at its start, changed while it runs."""
