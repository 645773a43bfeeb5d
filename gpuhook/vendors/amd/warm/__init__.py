# SPDX-License-Identifier: Apache-2.0
"""What hooks and commands on running containers need of AMD."""
