# SPDX-License-Identifier: Apache-2.0
"""The feature labels of a node."""
