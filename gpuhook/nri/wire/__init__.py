# SPDX-License-Identifier: Apache-2.0
"""The bytes of NRI's socket: multiplexer, ttrpc, protobuf, and the messages of interest."""
