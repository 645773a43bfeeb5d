# SPDX-License-Identifier: Apache-2.0
"""Debian and RPM packages of gpuhook, both made of one description: `python -m packages --help`."""
