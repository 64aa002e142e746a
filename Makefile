# Every target brings in what it needs (see tools/setup) and prints it.
#   make run    the daemon in the foreground with its own state below var/, until Ctrl-C
#   make test   every test; as root also on machines with a real systemd
#   make deb    dist/crtrd_VERSION_all.deb
#   make bench  the benchmarks beside the peers, in a machine with a real systemd (as root; 25 minutes)
#   make fuzz   hostile input for as long as FUZZ= examples take (20000 for each target)
#   make soak   kills a daemon SOAK_KILLS=1000 times and looks for what is lost; as root then one on a machine of each
#               release, too (half an hour each)
#   make lint   ruff, mypy, import-linter
# TESTS= narrows `make test`, as in: make test TESTS="tests/core -k overlap"
# ROWS= narrows `make bench`, as in: make bench ROWS="P3 P7"

PY := .venv/bin/python
TESTS ?=
ROWS ?=

.PHONY: run test fuzz deb bench soak lint clean setup-run setup-test setup-deb setup-bench setup-lint
.DEFAULT_GOAL := test

setup-run setup-test setup-deb setup-bench setup-lint: setup-%:
	@tools/setup $*

run: setup-run
	CRTR_HOME=$${CRTR_HOME:-$(CURDIR)/var} $(PY) -m crtrd.develop

test: setup-test
	@tools/say-left-out
	$(PY) -m pytest -m "" $(TESTS)

FUZZ ?= 20000
fuzz: setup-test
	CRTRD_FUZZ=$(FUZZ) $(PY) -m pytest -q tests/fuzz

deb: setup-deb
	packaging/build-deb

bench: setup-bench
	@$(PY) -m bench $(ROWS)

soak: setup-test
	$(PY) -m tests.faults.soak
	@[ "$$(id -u)" -ne 0 ] || CRTRD_MACHINE_KILLS=$${SOAK_KILLS:-1000} $(PY) -m pytest -m "" -s tests/machine/test_soak.py

lint: setup-lint
	$(PY) -m ruff check .
	$(PY) -m mypy
	.venv/bin/lint-imports

clean:
	rm -rf build dist .make .mypy_cache .ruff_cache .pytest_cache .hypothesis *.egg-info
	find crtrd tests -name __pycache__ -type d -prune -exec rm -rf {} +
