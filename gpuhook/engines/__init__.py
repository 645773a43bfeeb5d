# SPDX-License-Identifier: Apache-2.0
"""Container engines: what their configurations say, read as the engines read them."""
