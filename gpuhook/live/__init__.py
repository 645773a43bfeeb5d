# SPDX-License-Identifier: Apache-2.0
"""attach, detach and repair: work on a running container."""
