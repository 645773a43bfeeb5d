# SPDX-License-Identifier: Apache-2.0
"""CRI-O and podman, which are configured by drop-ins of TOML and hooks.d files."""
