# SPDX-License-Identifier: Apache-2.0
# On a fresh Debian machine, as root: `make demo` and `make test` set up all that they need.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help

PREFIX ?= /usr/local
DESTDIR ?=
# Runs the wrapper and the hook: any Python from 3.9 on, with nothing but its standard library.
PYTHON ?= /usr/bin/python3
# Runs the gpuhook command: Python 3.10 or newer with the package's dependencies.
CLI_PYTHON ?=
# 1: also what `gpuhook device-plugin` needs: gRPC and protobuf.
DEVICE_PLUGIN ?=
# 1: the prestart hook also under the name by which Docker's --gpus calls NVIDIA's.
NVIDIA_HOOK ?=
# 1: every name that configurations, CDI specs and scripts made for NVIDIA's toolkit call.
NVIDIA_COMPAT ?=
# The machine of the tarball and the standalone packages: x86_64 or aarch64.
MACHINE ?= $(shell uname -m)
# How many processes the tests run in.
WORKERS ?= 3
# Options of `make profile`, such as --modules; PROFILE=--help lists them.
PROFILE ?=
# Which part of the tests that `make test` leaves out: K/N.
PART ?= 1/10

# Each worker would compile all of the tests again.
unexport PYTHONDONTWRITEBYTECODE

VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST_RUN = $(BIN)/pytest --numprocesses $(WORKERS) --dist worksteal

# Real runtimes and engines, compilers for probes and stubs, and the system's own interpreter.
ENGINES := runc crun containerd podman
COMPILERS := gcc libc6-dev musl-tools
SYSTEM := python3 util-linux mount shellcheck strace ca-certificates groff-base zsh fish chromium?
SYSTEM += debian-archive-keyring
# Packages, images, manifests and units are made and checked with these.
PACKAGING := dpkg-dev rpm lintian buildah busybox-static debootstrap kubernetes-client?|kubectl systemd
# SELinux and AppArmor policies are compiled in a test.
PACKAGING += checkpolicy semodule-utils apparmor
# The tarball for the other machine is compiled here, and started by qemu in a test.
CROSS := gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user-static
ifeq ($(shell uname -m),aarch64)
CROSS := gcc-x86-64-linux-gnu libc6-dev-amd64-cross qemu-user-static
endif

# Programs in Go with the libraries of runc and of engines read what gpuhook reads: tests/differential.
GO := golang-go golang-github-opencontainers-specs-dev
GO += golang-github-container-orchestrated-devices-container-device-interface-dev
GO += golang-github-pelletier-go-toml-dev golang-github-pelletier-go-toml.v2-dev
GO += golang-github-burntsushi-toml-dev

.PHONY: help test test-unit test-all test-part test-engines soak fuzz check generate bench profile demo manifests docs \
	install pictures wheel tarball standalone deb rpm chart release-check release-notes clean packages

##@ General
help: ## Print what can be made
	@sed -nE -e 's/^##@ (.*)/\n\1:/p' -e 's/^([a-z-]+):.*## (.*)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 17

##@ Tests
test: packages $(READY) ## Run the everyday tests, which need no GPU; contract tests need root
	$(PYTEST_RUN) -m "not gpu and not engines and not thorough" $(PYTEST)

test-unit: $(READY) ## Run the unit tests, without packages of the system
	$(PYTEST_RUN) -m "not gpu and not engines and not thorough and not contract" tests/unit tests/imports

test-all: packages $(READY) ## Run every test that needs no GPU: all combinations, kill points, random examples
	@.ci/packages $(CROSS) $(GO)
	GPUHOOK_TESTS=all $(PYTEST_RUN) --timeout 1800 -m "not gpu and not engines" $(PYTEST)

test-part: packages $(READY) ## Run part PART (K/N) of what test-all adds to test
	@.ci/packages $(CROSS) $(GO)
	GPUHOOK_TESTS=all $(PYTEST_RUN) --timeout 1800 -m "not gpu and not engines" --part $(PART) $(PYTEST)

soak: packages $(READY) ## Run the long tests (hours) and write their figures to docs: races, kills, starts, turns
	@.ci/packages $(GO)
	GPUHOOK_TESTS=soak $(BIN)/pytest --numprocesses 2 --dist worksteal --timeout 7200 --figures -m "soak" $(PYTEST)

fuzz: $(READY) ## Give each parser hostile inputs for some seconds; with INPUTS=1000000, as many as that
	@$(BIN)/python -c "import atheris" 2>/dev/null || \
		$(BIN)/python -m pip install --quiet --only-binary atheris --group fuzz
	$(BIN)/python -m tests.fuzz $(if $(INPUTS),--inputs $(INPUTS) --keep --figures,--seconds 3) $(FUZZ)

test-engines: packages $(READY) ## Run the engines of three Debian releases; writes docs/support.md if all pass
	@.ci/packages systemd-container
	$(BIN)/pytest --numprocesses 2 --dist loadgroup --timeout 1800 -m "engines and not thorough" \
		$(or $(PYTEST),--support tests/engines)
	@PYTHONPATH=packaging $(BIN)/python -m generate

##@ Checks and generated files
check: $(READY) ## Check style, types, import rules, words, links, generated files and shell scripts
	@.ci/packages shellcheck
	@PYTHONPATH=packaging $(BIN)/python -m generate --check
	@PYTHONPATH=packaging $(BIN)/python -m language
	@PYTHONPATH=packaging $(BIN)/python -m language.links
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	shellcheck $$(.ci/scripts)

docs: $(READY) ## Make the documentation as a site in build/site
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict --config-file packaging/site/mkdocs.yml

generate: $(READY) ## Write the generated files: error pages, schemas, tables of settings and checks
	@PYTHONPATH=packaging $(BIN)/python -m generate

pictures: $(READY) ## Draw the pictures of docs/images as PNG in build/images, with chromium
	@PYTHONPATH=packaging $(BIN)/python -m drawings build/images

##@ Measure and show
bench: packages $(READY) ## Print what a container's start and the device plugin cost, and the budgets
	$(BIN)/python -m tests.bench $(BENCH)

profile: packages $(READY) ## Print where the time of a create goes; with valgrind, in instructions
	@.ci/packages valgrind
	$(BIN)/python -m tests.bench.create_profile $(PROFILE)

demo: packages $(READY) ## Show containers getting their GPUs, sharing them, losing them, getting them back
	@$(BIN)/python -m tests.demo

##@ Install and package
install: ## Install below PREFIX (and DESTDIR), to be run by PYTHON (and CLI_PYTHON)
	@$(PYTHON) packaging/install.py --prefix "$(PREFIX)" --python "$(PYTHON)" \
		$(if $(DESTDIR),--destdir "$(DESTDIR)") $(if $(CLI_PYTHON),--cli-python "$(CLI_PYTHON)") \
		$(if $(filter 1,$(DEVICE_PLUGIN)),--device-plugin) \
		$(if $(filter 1,$(NVIDIA_HOOK)),--nvidia-hook) \
		$(if $(filter 1,$(NVIDIA_COMPAT)),--nvidia-compat)

wheel: $(READY) ## Make the wheel and the source archive in build/wheel, and check their metadata
	rm -rf build/wheel
	$(BIN)/python -m hatchling build --directory build/wheel
	$(BIN)/twine check --strict build/wheel/*

tarball: packages $(READY) ## Make the tarball that runs anywhere, with its own Python, in build/packages
	@$(if $(filter $(shell uname -m),$(MACHINE)),,.ci/packages $(CROSS))
	PIP_PYTHON=$(abspath $(BIN)/python) /usr/bin/python3 packaging/image/tarball.py \
		--machine $(MACHINE) build/packages

standalone: tarball ## Make the packages with their own Python, deb and rpm, of the tarball; MACHINE=aarch64
	@PYTHONPATH=packaging $(BIN)/python -m packages deb rpm \
		--tarball build/packages/gpuhook-$$(sed -n 's/^__version__ = "\(.*\)"$$/\1/p' gpuhook/__init__.py)-linux-$(MACHINE).tar.gz

deb: packages $(READY) ## Make the Debian packages and their bill of materials in build/packages
	@PYTHONPATH=packaging $(BIN)/python -m packages deb

rpm: packages $(READY) ## Make the RPM packages and their bill of materials in build/packages
	@PYTHONPATH=packaging $(BIN)/python -m packages rpm

chart: $(READY) ## Make the Helm chart of a release in build/chart
	rm -rf build/chart
	@PYTHONPATH=packaging $(BIN)/python -m release chart build/chart
	$(BIN)/helm lint --strict build/chart/gpuhook
	$(BIN)/helm package --destination build/chart build/chart/gpuhook

manifests: $(READY) ## Make the plain manifests for Kubernetes of the Helm chart
	$(BIN)/python packaging/kubernetes/render.py $(BIN)/helm

##@ Releases
release-check: ## Compare the version, the chart, the changelog and TAG
	@PYTHONPATH=packaging $(PYTHON) -m release check $(TAG)

release-notes: ## Print the section of the changelog for this version
	@PYTHONPATH=packaging $(PYTHON) -m release notes

##@ Clean
clean: ## Remove what was made here, the kept root file systems of the tests too
	rm -rf build dist $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find gpuhook tests packaging -name __pycache__ -type d -prune -exec rm -rf {} +

packages:
	@.ci/packages $(ENGINES) $(COMPILERS) $(foreach name,$(SYSTEM),"$(name)") $(foreach name,$(PACKAGING),"$(name)")

$(READY): pyproject.toml .ci/venv
	@.ci/venv $(VENV)
	@touch $@
