# SPDX-License-Identifier: Apache-2.0
"""`make demo`: the first five minutes with gpuhook, in acts."""
