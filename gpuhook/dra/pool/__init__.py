# SPDX-License-Identifier: Apache-2.0
"""The devices of this node as ResourceSlices of the API server."""
