# SPDX-License-Identifier: Apache-2.0
"""The modes of generate-cdi: each finds devices in a way of its own, and describes them."""
