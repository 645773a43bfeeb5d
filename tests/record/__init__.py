# SPDX-License-Identifier: Apache-2.0
"""The behaviour record: what each command, the wrapper and the hooks do, compared byte for byte.

    python -m tests.record [--update] [--list] [GROUP[/NAME] ...]
    pytest tests/record

Each case runs on a simulated node in its own namespaces, where every path is fixed (sandbox.py),
and becomes a text: the command, its exit status and output, and each file that it changed
(transcript.py). expected/GROUP/NAME.txt has the text as it was last recorded; a config.json is
recorded as the difference to what the engine wrote. After an intended change, record again with
--update, and read the difference before the commit. Cases use stable surfaces only: programs, their
files and their output. surface.py alone imports the package.
"""
