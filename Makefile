# `make run` and `make test` work on a fresh Debian or Ubuntu with git, make and sudo (or root); see scripts/setup.

CARGO := scripts/cargo
VMTAX := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release/vmtax
PREFIX ?= /usr/local
SHARE := $(DESTDIR)$(PREFIX)/share
FUZZ_SECONDS ?= 60
SKIPPED := $(CURDIR)/target/skipped-tests

.DEFAULT_GOAL := help
.PHONY: help run test lint bench build install fuzz clean

help: ## list these targets
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' Makefile | expand -t 16

run: ## install what is missing, build, measure this machine and a guest (3 minutes)
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@$(VMTAX) run --quick

test: ## install what is missing, build, run all tests; some boot guests
	@scripts/setup test
	@$(MAKE) --no-print-directory build
	@rm -f $(SKIPPED); status=0; echo "$(CARGO) test --release --locked --workspace --no-fail-fast"; \
	VMTAX_SKIPPED=$(SKIPPED) $(CARGO) test --release --locked --workspace --no-fail-fast || status=$$?; \
	[ ! -e $(SKIPPED) ] || { echo "Not tested here:"; sort -u $(SKIPPED); }; exit $$status

lint: ## formatting, clippy, documentation and its links, layers, shell scripts
	@scripts/setup lint
	$(CARGO) fmt --check -- crates/measure/workload/src/workloads/*.rs # which a macro declares
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	scripts/check-layers
	scripts/check-docs
	shellcheck scripts/* .ci/run

bench: ## measure vmtax beside sysbench, fio, Bonnie++, virtme-ng, trace-cmd; with SIMPLETRACE=FILE also simpletrace.py of QEMU
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked --package vmtax-workload --example cost
	$(CARGO) build --release --locked --package vmtax-trace --example decode
	@status=0; bench/native.py || status=$$?; bench/bonnie.py || status=$$?; bench/boot.py || status=$$?; bench/exec.py || status=$$?; bench/layers.py || status=$$?; bench/compare.py || status=$$?; bench/profile.py || status=$$?; bench/decode.py $(if $(SIMPLETRACE),--simpletrace $(SIMPLETRACE),--only rate,trace-cmd,go) || status=$$?; exit $$status

build: ## build the release: target/x86_64-unknown-linux-gnu/release/vmtax
	$(CARGO) build --release --locked --package vmtax

install: build ## install below PREFIX (/usr/local), with man pages and completions
	install -D -m 755 $(VMTAX) $(DESTDIR)$(PREFIX)/bin/vmtax
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions $(SHARE)/fish/vendor_completions.d
	$(VMTAX) man $(SHARE)/man/man1
	$(VMTAX) completions bash > $(SHARE)/bash-completion/completions/vmtax
	$(VMTAX) completions zsh > $(SHARE)/zsh/site-functions/_vmtax
	$(VMTAX) completions fish > $(SHARE)/fish/vendor_completions.d/vmtax.fish

fuzz: ## fuzz each parser for FUZZ_SECONDS (60); needs a nightly Rust and cargo-fuzz
	@scripts/fuzz $(FUZZ_SECONDS)

clean: ## remove what was built; runs/ stays
	rm -rf target fuzz/target
