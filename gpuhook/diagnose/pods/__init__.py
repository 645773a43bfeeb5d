# SPDX-License-Identifier: Apache-2.0
"""Pods: what manifests ask for, what Kubernetes objects to, and what the plugin would answer.

manifests.read() gives the containers (asked.Asked), answers.of_pods() what each of them would get
on a node under a configuration (offering.configuration()), container_spec.as_spec() the config.json
that comes of both, and documents.document() all of it for programs.
"""
