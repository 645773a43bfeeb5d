# SPDX-License-Identifier: Apache-2.0
"""Secrets go, formats and all that doctor looks at stay."""

from __future__ import annotations

import json

import pytest

from gpuhook.support_bundle.secret_words import REMOVED
from gpuhook.support_bundle.secrets import Secrets

JWT = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ('password = "hunter2"', "hunter2"),
        ("  password: hunter2", "hunter2"),
        ('{"identitytoken": "abc-def"}', "abc-def"),
        ('auth = "dXNlcjpwYXNz"', "dXNlcjpwYXNz"),
        ('"client-key-data": "LS0tLS1C"', "LS0tLS1C"),
        ("certificate-authority-data: LS0tLS1C", "LS0tLS1C"),
        ('Environment="HTTPS_PROXY=http://me:pa55@proxy:3128"', "pa55"),
        ("https_proxy = http://me:pa55@proxy:3128", "pa55"),
        ('{"env": ["DB_PASSWORD=hunter2"]}', "hunter2"),
        ('{"env": ["CUSTOMER=acme \\" corp"]}', "acme"),
        ("env:\n- CUSTOMER=acme\n", "acme"),
        ("env:\n- name: CUSTOMER\n  value: acme\n", "acme"),
        (f"bearer {JWT}", JWT),
        ("Authorization: Bearer abcdefghijkl", "abcdefghijkl"),
        ("kubelet --bootstrap-token=abc.def --v=2", "abc.def"),
        ("I1101 joining with token=abc.def now", "abc.def"),
        ("GET https://r.io/v2?access_token=abcdef&x=1", "abcdef"),
        ("k3s server --agent-token K10abc", "K10abc"),
        ("-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----\n", "MIIE"),
        ("-----BEGIN CERTIFICATE-----\nMIIC", "MIIC"),
        ("Hd8x/w==\nMIIC\n-----END RSA PRIVATE KEY-----\nline\n", "MIIC"),
        ("kind: Secret\ndata:\n  a: c2VjcmV0\n---\nkind: Pod\n", "c2VjcmV0"),
    ],
)
def test_a_secret_goes_and_is_told(text: str, secret: str) -> None:
    secrets = Secrets()
    found = secrets.out_of_text(text, "here")
    assert secret not in found
    assert {where for where, _ in secrets.taken} == {"here"}
    assert all(what for _, what in secrets.taken)
    assert all(secret not in what for _, what in secrets.taken)
    assert Secrets().out_of_text(found, "here") == found


@pytest.mark.parametrize(
    "text",
    [
        "automountServiceAccountToken: false",
        'token_path = "/var/run/secrets/token"',
        "tokenTTL: 3600",
        '{"env": ["NVIDIA_VISIBLE_DEVICES=void", "PATH=/usr/bin"]}',
        '{"options": ["mode=755", "size=65536k"], "args": ["--path=/a"]}',
        '[plugins."io.containerd.grpc.v1.cri".registry.configs."x".auth]',
        "accept-nvidia-visible-devices-envvar-when-unprivileged = true",
        'ldconfig = "@/sbin/ldconfig"',
        "/dev/nvidia0 195:0 author: someone",
        "- name: nvidia.com/gpu\n  replicas: 4\n",
        "kind: RuntimeClass\nhandler: nvidia\n",
        "boot=abc,driver=580.95.05,majors=nvidia:195",
    ],
)
def test_what_is_no_secret_stays(text: str) -> None:
    secrets = Secrets()
    assert secrets.out_of_text(text, "here") == text
    assert not secrets.taken


def test_a_document_stays_of_its_shape() -> None:
    secrets = Secrets()
    document = {
        "argv": ["k3s", "--token", "K10abc", "--data-dir", "/x", "SOME=value", "HOME=/root"],
        "password": "hunter2",
        "count": 3,
        "nested": [{"config": 'auth = "abc"\nmode = "auto"\n'}],
        "token": None,
    }
    assert secrets.out_of_document(document, "here") == {
        "argv": ["k3s", "--token", REMOVED, "--data-dir", "/x", f"SOME={REMOVED}", "HOME=/root"],
        "password": REMOVED,
        "count": 3,
        "nested": [{"config": f'auth = "{REMOVED}"\nmode = "auto"\n'}],
        "token": None,
    }
    assert secrets.taken.total() == 4


def test_json_with_secrets_stays_json() -> None:
    text = json.dumps({"auths": {"r": {"auth": "abc"}}, "process": {"env": ["A_B=c", "D_E=\\"]}})
    found = json.loads(Secrets().out_of_text(text, "here"))
    assert found["auths"] == {"r": {"auth": REMOVED}}
    assert found["process"]["env"] == [f"A_B={REMOVED}", f"D_E={REMOVED}"]


def test_bytes_that_are_no_text_stay() -> None:
    content = b"\x7fELF\0password=hunter2"
    assert Secrets().out_of_content(content, "here") == content
    assert (
        Secrets().out_of_content(b"a: \xff\npassword: x\n", "") == b"a: \xff\npassword: REMOVED\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "a" * 500_000,
        "-" * 500_000,
        "\n" * 500_000,
        "name: AB" + "\n" * 500_000,
        "password: x" + " " * 500_000 + "y",
        "token" * 100_000,
        "eyJ-" * 100_000,
        "-----BEGIN " * 50_000,
        "kind: x" + "\n---" * 100_000,
        "\"AB='AB=" * 60_000,
        "a://" * 100_000,
    ],
    ids=lambda text: text[:12],
)
def test_no_text_keeps_it_busy(text: str) -> None:
    """A pattern that goes over a text again for each place in it would take hours here."""
    assert Secrets().out_of_text(text, "here")


def test_who_is_asked_for_users_is_no_password() -> None:
    """Every Debian has this file, and the list of what was removed began with it."""
    secrets = Secrets()
    content = b"passwd:         files systemd\nsubid: sss\n"
    assert secrets.out_of_content(content, "files/etc/nsswitch.conf") == content
    assert not secrets.taken
