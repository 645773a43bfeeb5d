# SPDX-License-Identifier: Apache-2.0
"""Calls for a CDI spec of a vendor, and the specs that it judges."""
