# SPDX-License-Identifier: Apache-2.0
"""The labels of AMD's node labeller."""
