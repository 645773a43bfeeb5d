# SPDX-License-Identifier: Apache-2.0
"""The parts of an explanation: request, requirements, resolution, sharing, outcome."""
