# SPDX-License-Identifier: Apache-2.0
"""Known attacks on software of this kind, and races by processes of a container."""
