# SPDX-License-Identifier: Apache-2.0
"""CDI specs of AMD GPUs."""
