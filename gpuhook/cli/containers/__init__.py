# SPDX-License-Identifier: Apache-2.0
"""Commands on one running container: attach, detach, repair, limits, inspect."""
