# SPDX-License-Identifier: Apache-2.0
"""The kinds of errors, named by who must act.

The command line is wrong, the request is wrong, a file is wrong, the driver is missing or
mismatched, policy refused it, this host cannot do it. Loaded with the first of them.
"""

from __future__ import annotations

from gpuhook.errors.gpuhook_error import GpuhookError


class UsageError(GpuhookError):
    """An option, argument or variable of a command has a value that the command does not accept."""


class RequestError(GpuhookError):
    """The container requests a device that does not exist, or its request is malformed."""


class FileError(GpuhookError):
    """A file (CDI spec, config.json, loader cache, dump) is missing, broken or contradictory."""


class DriverError(GpuhookError):
    """A vendor's driver is missing, incomplete, or of a version other than expected."""


class RefusedError(GpuhookError):
    """A policy, or the safety of the host, forbids the request."""


class HostError(GpuhookError):
    """The host lacks something gpuhook needs: a runtime, a writable directory, a program."""
