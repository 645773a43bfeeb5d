# SPDX-License-Identifier: Apache-2.0
"""Commands for a node: settings, inventory, labels, device plugin, health, system."""
