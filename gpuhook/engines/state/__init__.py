# SPDX-License-Identifier: Apache-2.0
"""The state that engines keep on a node: containers, directories and processes."""
