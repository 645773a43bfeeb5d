# SPDX-License-Identifier: Apache-2.0
"""The part of the CDI model that the runtime wrapper imports: compiled specs and names."""
