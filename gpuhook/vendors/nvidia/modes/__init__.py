# SPDX-License-Identifier: Apache-2.0
"""The modes of generate-cdi: each finds and describes devices in its own way."""
