# SPDX-License-Identifier: Apache-2.0
"""The configuration of engines as text and as documents."""
