# SPDX-License-Identifier: Apache-2.0
"""Facts about a node that only checks above vendors/ use."""
