# SPDX-License-Identifier: Apache-2.0
"""Checks CDI specs of any vendor against the CDI rules and against the host."""
