# SPDX-License-Identifier: Apache-2.0
"""The cases, a module for each group."""
