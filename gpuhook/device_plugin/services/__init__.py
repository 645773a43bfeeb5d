# SPDX-License-Identifier: Apache-2.0
"""The device plugin's services: each runs beside the loop that offers devices."""
