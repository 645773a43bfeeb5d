# SPDX-License-Identifier: Apache-2.0
# The gpuhook command in an image, which can also put gpuhook on the node that it runs on:
#
#   docker run --rm gpuhook generate-cdi --inventory t4
#   docker run --rm -v /usr/local:/host/usr/local --entrypoint make gpuhook \
#     -C /usr/src/gpuhook install DESTDIR=/host
#
# What is installed on a node is run by the node's own /usr/bin/python3 (3.9 or newer), at the same
# path as in here.
ARG DEBIAN=bookworm-slim

FROM debian:${DEBIAN} AS build
RUN apt-get update \
 && apt-get install --yes --no-install-recommends python3 python3-venv \
 && rm -rf /var/lib/apt/lists/*
WORKDIR /usr/src/gpuhook
COPY pyproject.toml README.md LICENSE ./
COPY gpuhook gpuhook
RUN python3 -m venv /opt/gpuhook \
 && /opt/gpuhook/bin/pip install --no-cache-dir --disable-pip-version-check ".[plugin]"

FROM debian:${DEBIAN}
LABEL org.opencontainers.image.title="gpuhook" \
      org.opencontainers.image.description="The GPU layer of container nodes" \
      org.opencontainers.image.licenses="Apache-2.0"
RUN apt-get update \
 && apt-get install --yes --no-install-recommends make python3 \
 && rm -rf /var/lib/apt/lists/*
COPY --from=build /opt/gpuhook /opt/gpuhook
COPY LICENSE /usr/share/doc/gpuhook/LICENSE
COPY Makefile /usr/src/gpuhook/Makefile
COPY packaging /usr/src/gpuhook/packaging
COPY gpuhook /usr/src/gpuhook/gpuhook
ENV PATH=/opt/gpuhook/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
ENTRYPOINT ["/opt/gpuhook/bin/gpuhook"]
CMD ["--help"]
