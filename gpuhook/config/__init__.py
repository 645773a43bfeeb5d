# SPDX-License-Identifier: Apache-2.0
"""NVIDIA's config.toml taken over as settings."""
