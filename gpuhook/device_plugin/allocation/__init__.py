# SPDX-License-Identifier: Apache-2.0
"""What a container is handed for the units it was allocated."""
