# SPDX-License-Identifier: Apache-2.0
"""What a terminal can show: width, colours, characters."""
