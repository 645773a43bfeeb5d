# SPDX-License-Identifier: Apache-2.0
"""Building blocks that every other folder shares: files, workers, settings, logs, documents."""
