# SPDX-License-Identifier: Apache-2.0
"""Debian and RPM packages of gpuhook, built from one description: `python -m packages --help`."""
