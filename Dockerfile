# SPDX-License-Identifier: Apache-2.0
# The image: the device plugin, the `gpuhook` command, and all that a host needs to run gpuhook.
#
#   docker build --tag gpuhook .
#   docker run --rm gpuhook generate-cdi --inventory t4
#   docker run --rm --privileged --pid host -v /:/host gpuhook node install --host-root /host
#
# Nothing of a distribution is in the last stage but a Python, the libraries that it needs, their
# loader and busybox: the runtime tree, which `gpuhook node install` copies to hosts that have none of
# them. docs/how-to/image.md says more. For amd64 and arm64: what is built is the builder's own kind.
ARG DEBIAN=bookworm-slim

FROM debian:${DEBIAN} AS build
# Where pip looks, beside its own settings: for who builds behind a mirror.
ARG PIP_INDEX_URL
ARG PIP_CERT
RUN apt-get update \
 && apt-get install --yes --no-install-recommends busybox-static ca-certificates gcc libc6-dev musl-tools python3 \
      python3-pip \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /usr/src/gpuhook
COPY pyproject.toml ./
COPY packaging/image/tree.py packaging/image/debian.py packaging/image/
# The packages change seldom: this layer is made again only with pyproject.toml.
RUN python3 packaging/image/tree.py requirements > requirements.txt \
 && python3 -m pip install --no-cache-dir --no-compile --disable-pip-version-check \
      --root-user-action ignore --target /packages --requirement requirements.txt
COPY packaging/bundle.py packaging/install.py packaging/static_program.py packaging/gpuhook* packaging/
COPY packaging/image packaging/image
COPY gpuhook gpuhook
COPY LICENSE ./
# The time of the bill of materials.
ARG SOURCE_DATE_EPOCH
RUN python3 packaging/image/tree.py build --packages /packages /image/opt/gpuhook \
 && python3 packaging/image/sbom.py --packages /packages /image/opt/gpuhook \
 && python3 packaging/image/rootfs.py /image /opt/gpuhook

FROM scratch
LABEL org.opencontainers.image.title="gpuhook" \
      org.opencontainers.image.description="The GPU layer of container nodes" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /image /
ENV PATH=/usr/bin
ENTRYPOINT ["/usr/bin/gpuhook"]
CMD ["--help"]
