# SPDX-License-Identifier: Apache-2.0
# ruff: noqa: E501
"""Kinds of secrets on a node, and the parts of them that no support bundle may contain."""

from __future__ import annotations

KINDS = {
    "env in a line of a log": (
        'I1 created {"process": {"env": ["db_conn=acmecorp", "PATH=/bin"]}} now',
        ("acmecorp",),
    ),
    "containerd auth": (
        '[plugins."io.containerd.grpc.v1.cri".registry.configs."r.io".auth]\n  username = "u"\n  password = "/hun/ter2/AbC"\n  auth = "dXNlcjpwYXNz"\n  identitytoken = "S3cr3t-Id"\n',
        ("ter2", "dXNlcjpwYXNz", "S3cr3t-Id"),
    ),
    "numeric password toml": ('password = "12345678"\n', ("12345678",)),
    "numeric password json": ('{"password": 12345678}', ("12345678",)),
    "numeric yaml": ("password: 12345678\n", ("12345678",)),
    "yaml block": ("password: |\n  hunter2line\n  second9\nnext: 1\n", ("hunter2line", "second9")),
    "dockerconfig": (
        '{"auths":{"nvcr.io":{"username":"$oauthtoken","password":"bnZhcGk=","auth":"JG9hdXRo"}}}',
        ("bnZhcGk", "JG9hdXRo"),
    ),
    "dockerconfigjson b64": (
        ".dockerconfigjson: eyJhdXRocyI6eyJudmNyLmlvIjp7fX19",
        ("eyJhdXRocyI6",),
    ),
    "aws": (
        "[default]\naws_access_key_id = AKIAIOSFODNN7EXAMPLE\naws_secret_access_key = /JalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY\n",
        ("AKIAIOSFODNN7EXAMPLE", "K7MDENG"),
    ),
    "aws in log": (
        "I1 using AKIAIOSFODNN7EXAMPLE with wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY now",
        ("AKIAIOSFODNN7EXAMPLE", "K7MDENG"),
    ),
    "nvapi": ("I1 key nvapi-AbCdEf0123456789_-AbCdEf0123456789 used", ("nvapi-AbC",)),
    "hf": ("downloading with hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123 ok", ("hf_AbC",)),
    "github": ("cloning ghp_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", ("ghp_A",)),
    "gitlab": ("x glpat-AbCdEfGhIjKlMnOpQrSt y", ("glpat-A",)),
    "slack": ("hook xoxb-123456789012-abcdefABCDEF", ("xoxb-1",)),
    "openai": ("sk-proj-AbCdEfGhIjKlMnOpQrStUvWxYz0123456789", ("sk-proj-A",)),
    "google": ("AIzaSyA1234567890abcdefghijklmnopqrstuv", ("AIzaSy",)),
    "gcp sa": (
        '{"private_key": "-----BEGIN PRIVATE KEY-----\\nMIIEvQ\\n-----END PRIVATE KEY-----\\n","private_key_id":"abc123def"}',
        ("MIIEvQ", "abc123def"),
    ),
    "openssh": (
        "-----BEGIN OPENSSH PRIVATE KEY-----\nb3Blbn\n-----END OPENSSH PRIVATE KEY-----\n",
        ("b3Blbn",),
    ),
    "url pw with @": ("HTTP_PROXY=http://user:p@ss9w0rd@proxy:3128", ("ss9w0rd",)),
    "url pw with slash": ("proxy http://user:pa/ss9w0rd@proxy:3128/", ("ss9w0rd",)),
    "schemeless proxy": ('{"proxies":{"http-proxy":"user:pa55word@proxy:3128"}}', ("pa55word",)),
    "env two": ("Environment=NVIDIA_VISIBLE_DEVICES=all CUSTOMER=acmecorp\n", ("acmecorp",)),
    "env two quoted": ("Environment='PATH=/bin' 'CUSTOMER=acmecorp'\n", ("acmecorp",)),
    "env lower json": ('{"process":{"env":["db_conn=acmecorp","PATH=/bin"]}}', ("acmecorp",)),
    "env name value json": ('{"env":[{"name":"CUSTOMER","value":"acmecorp"}]}', ("acmecorp",)),
    "env value name json": ('{"env":[{"value":"acmecorp","name":"CUSTOMER"}]}', ("acmecorp",)),
    "env escaped json in annotation": (
        '{"a":"{\\"env\\":[{\\"name\\":\\"CUSTOMER\\",\\"value\\":\\"acmecorp\\"}]}"}',
        ("acmecorp",),
    ),
    "yaml lower env": ('env:\n  - name: db_conn\n    value: "acmecorp"\n', ("acmecorp",)),
    "yaml value first": ("env:\n  - value: acmecorp\n    name: CUSTOMER\n", ("acmecorp",)),
    "secret json": (
        '{"kind":"Secret","data":{"x":"YWNtZWNvcnA="},"stringData":{"y":"acmecorp"}}',
        ("YWNtZWNvcnA", "acmecorp"),
    ),
    "secret list yaml": (
        "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: Secret\n  data:\n    x: YWNtZWNvcnA=\n",
        ("YWNtZWNvcnA",),
    ),
    "shadow": ("root:$6$rounds=5000$saltsalt$hashhashhashhash:19000:0:99999:7:::\n", ("hashhash",)),
    "htpasswd": ("u:$apr1$abc$hashhash9\n", ("hashhash9",)),
    "bcrypt": ("u:$2y$05$abcdefghijklmnopqrstuv\n", ("abcdefghijklmno",)),
    "basic": ("authorization: Basic dXNlcjpwYXNz", ("dXNlcjpwYXNz",)),
    "auth token hdr": (
        "X-Auth-Token: acmecorp123\nX-Api-Key: acmekey99",
        ("acmecorp123", "acmekey99"),
    ),
    "cookie": ("Cookie: session=acmecorp99; b=c", ("acmecorp99",)),
    "kubeadm": ("discovery abcdef.0123456789abcdef used", ("abcdef.0123456789abcdef",)),
    "k3s token": ("K10c4f0abcdef0123456789::server:hunter22 in log", ("hunter22",)),
    "azure conn": (
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=Zm9vYmFy;EndpointSuffix=core",
        ("Zm9vYmFy",),
    ),
    "sas": ("https://a.blob.core/x?sv=2020&sig=AbCd%2Bef1234&se=1", ("AbCd%2Bef",)),
    "aws presigned": (
        "https://s3/x?X-Amz-Signature=0a1b2c3d4e&X-Amz-Credential=AKIA",
        ("0a1b2c3d4e",),
    ),
    "pwd": ("Server=db;Uid=u;Pwd=hunter222;", ("hunter222",)),
    "mysql arg": ("mysql -uroot --password=hunter222", ("hunter222",)),
    "pass key": ('{"pass":"hunter222"}\npass = hunter222\nDB_PASS: hunter222', ("hunter222",)),
    "cmdline nul": (
        "kubelet\x00--token\x00hunter222\x00--password=hunter333\x00",
        ("hunter222", "hunter333"),
    ),
    "curl -u": ("curl -u user:hunter222 https://x", ("hunter222",)),
    "encryption key": (
        'encryption_key = "AbCd1234=="\nsigning-key: "xYz999"\nmasterKey: Abc12345',
        ("AbCd1234", "xYz999", "Abc12345"),
    ),
    "wireguard": ("PrivateKey = aGVsbG8gd29ybGQ=", ("aGVsbG8",)),
    "psk": ("psk=acmecorp9\n", ("acmecorp9",)),
    "export": ("export my_secret_thing=acmecorp9\n", ("acmecorp9",)),
    "envfile": ("CUSTOMER=acmecorp9\nHTTP_PROXY=u:pa55@h:1\n", ("pa55",)),
    "age": ("AGE-SECRET-KEY-1QQQQQQQQQQQQQQQQQQQQ", ("1QQQQ",)),
    "single q json log": ("{'password': 'hunter222'}", ("hunter222",)),
    "escaped json pw": ('"{\\"password\\":\\"hunter222\\"}"', ("hunter222",)),
    "jwt": ("token eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlIn0.c2lnbmF0dXJl", ("eyJpc3Mi",)),
    "kubeconfig": (
        "users:\n- user:\n    client-key-data: LS0tLS1CRUdJ\n    client-certificate-data: LS0tX\n    token: abcdef.x\n",
        ("LS0tLS1CRUdJ", "LS0tX", "abcdef.x"),
    ),
    "toml array": (
        '[a]\nauth = {username = "u", password = "hunter222"}\nheaders = {Authorization = ["Bearer hunter222333"], X-Meta = ["a"]}',
        ("hunter222",),
    ),
    "yaml seq": ("tokens:\n  - hunter222\n  - hunter333\n", ("hunter222", "hunter333")),
    "json seq": ('{"secrets": ["hunter222"]}', ("hunter222",)),
    "cr": ("password: hunter222\rfoo", ("hunter222",)),
    "unicode colon space": ("password :   hunter222", ("hunter222",)),
    "token word": ('I0101 using token "hunter222"', ("hunter222",)),
    "vault": ("hvs.CAESIAbCdEfGhIjKlMnOp", ("CAESI",)),
    "ngc old key": ("apikey = bmd5dGVzdA\nNGC_CLI_API_KEY=bmd5\n", ("bmd5",)),
}
