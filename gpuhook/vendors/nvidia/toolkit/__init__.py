# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's container toolkit does differently from gpuhook."""
