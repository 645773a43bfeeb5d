# SPDX-License-Identifier: Apache-2.0
"""The document of explain as text."""
