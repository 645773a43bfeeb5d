# SPDX-License-Identifier: Apache-2.0
"""The labels of a node, in any vendor's terms."""
