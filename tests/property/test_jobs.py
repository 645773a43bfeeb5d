# SPDX-License-Identifier: Apache-2.0
"""The arguments of the hook are a complete form of its jobs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gpuhook.apply.rootfs import hook_args

NAME = st.text(st.characters(codec="ascii", categories=["L", "N"]), min_size=1, max_size=8)
PATH = st.builds("/{}/{}".format, NAME, NAME)
TEXT = (
    "cuda_compat", "cuda_version", "driver_version", "fingerprint", "libcuda", "ldconfig",
    "host_root",
)  # fmt: skip


def facts(job: hook_args.Jobs) -> dict[str, object]:
    return {name: getattr(job, name) for name in hook_args.Jobs.__slots__}


@given(
    st.lists(st.tuples(PATH, NAME), max_size=3),
    st.lists(st.tuples(NAME, PATH), max_size=3),
    st.lists(st.one_of(st.just(""), PATH), min_size=7, max_size=7),
    st.lists(st.tuples(NAME, NAME, NAME), max_size=2),
    st.lists(st.tuples(st.integers(0, 0o777), PATH), max_size=2),
    st.lists(st.sampled_from([hook_args.LINKS, hook_args.LOADER, hook_args.PROFILE]), max_size=3),
    st.booleans(),
    st.booleans(),
)
def test_jobs_are_read_back_from_the_arguments(
    libraries: list[tuple[str, str]],
    links: list[tuple[str, str]],
    texts: list[str],
    gpus: list[tuple[str, str, str]],
    chmod: list[tuple[int, str]],
    skipped: list[str],
    driver_params: bool,
    whole: bool,
) -> None:
    job = hook_args.Jobs("/usr/bin/gpuhook-hook")
    job.chmod, job.skipped = chmod, skipped
    job.libraries, job.links, job.driver_params = libraries, links, driver_params
    job.gpus = gpus
    job.whole = whole
    for name, text in zip(TEXT, texts, strict=True):
        setattr(job, name, text or ("/" if name == "host_root" else ""))
    hook = job.hook()
    assert hook_args.is_ours(hook)
    assert facts(hook_args.of_hook(hook)) == facts(job)
    assert hook_args.of_hook(hook).hook() == hook
