# SPDX-License-Identifier: Apache-2.0
"""Devices with their users, isolation and memory limits, as every vendor gives them."""
