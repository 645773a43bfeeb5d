# SPDX-License-Identifier: Apache-2.0
"""What commands read of a node: its files, and the answers of a running node."""
