# SPDX-License-Identifier: Apache-2.0
"""Facts about a node's driver and its CDI specs that several checks of doctor use."""
