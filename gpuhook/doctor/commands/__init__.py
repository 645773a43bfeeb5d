# SPDX-License-Identifier: Apache-2.0
"""The commands and changes that fix a node: engines and CDI specs."""
