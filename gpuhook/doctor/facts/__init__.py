# SPDX-License-Identifier: Apache-2.0
"""Facts about a node that several checks of doctor use."""
