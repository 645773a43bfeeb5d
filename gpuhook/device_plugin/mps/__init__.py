# SPDX-License-Identifier: Apache-2.0
"""Sharing by MPS: control daemons."""
