# SPDX-License-Identifier: Apache-2.0
"""The command lines of README and docs, and the scenarios that run them."""
