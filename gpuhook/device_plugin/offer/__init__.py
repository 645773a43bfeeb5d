# SPDX-License-Identifier: Apache-2.0
"""What a node offers: devices, shared or whole, named, counted, and preferred."""
