# SPDX-License-Identifier: Apache-2.0
"""gpuhook-hook: what runtimes and CDI specs call while a container is made."""
