# Everything a contributor runs. Needs Python 3.11 or newer, make and git; the rest is installed below this folder.

PYTHON ?= python3
VENV := .venv
export PATH := $(CURDIR)/$(VENV)/bin:$(PATH)

# Where generated stubs go; `make check-gen` points it elsewhere.
OUT ?= protos
PROTOS := $(wildcard protos/hubbub/v1/*.proto)

.PHONY: gen check-gen

gen:
	$(VENV)/bin/python -m grpc_tools.protoc -I protos --python_out=$(OUT) --grpc_python_out=$(OUT) \
	  --mypy_out=quiet:$(OUT) --mypy_grpc_out=quiet:$(OUT) $(PROTOS)

check-gen:
	@fresh=$$(mktemp -d) && trap 'rm -rf "$$fresh"' EXIT && $(MAKE) --no-print-directory -s gen OUT="$$fresh" && \
	  diff -r -x '*.proto' -x '__*__*' protos/hubbub/v1 "$$fresh/hubbub/v1" || \
	  { echo "The checked-in stubs differ from the protos: run 'make gen'." >&2; exit 1; }
