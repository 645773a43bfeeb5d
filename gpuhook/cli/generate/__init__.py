# SPDX-License-Identifier: Apache-2.0
"""The options of generate-cdi, the call from other commands, and the written spec."""
