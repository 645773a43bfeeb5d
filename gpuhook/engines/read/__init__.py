# SPDX-License-Identifier: Apache-2.0
"""Configuration and state of container engines, read."""
