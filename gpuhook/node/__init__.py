# SPDX-License-Identifier: Apache-2.0
"""What is looked at of a node: its files, and what only a running node can tell."""
