# SPDX-License-Identifier: Apache-2.0
"""The grammar of the plugin's configuration file: keys, values, places of errors."""
