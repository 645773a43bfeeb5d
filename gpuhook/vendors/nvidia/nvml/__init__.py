# SPDX-License-Identifier: Apache-2.0
"""What NVML reports, through pynvml."""
