# `make run` and `make test` work on a fresh Debian or Ubuntu with git, make and sudo (or root); see scripts/setup.

CARGO := scripts/cargo
VMTAX := $(or $(CARGO_TARGET_DIR),target)/x86_64-unknown-linux-gnu/release/vmtax
PREFIX ?= /usr/local
SHARE := $(DESTDIR)$(PREFIX)/share
STAGE := $(CURDIR)/target/stage
MSRV := $(shell sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)
# Where scripts/setup puts what it does not take from the distribution.
export PATH := $(PATH):$(CURDIR)/target/tools/bin
FUZZ_INPUTS ?= 1000000
CHAOS_KILLS ?= 50
FAULTS ?=

.DEFAULT_GOAL := help
.PHONY: help run test box box-full matrix lint bench chaos faults build install docs stage dist deb rpm fuzz clean

help: ## list these targets
	@sed -n 's/^\([a-z-]*\):.*## /  make \1\t/p' Makefile | expand -t 16

run: ## install what is missing, build, then answer for this machine: its VMs, diagnosed, and a guest's overhead (2 minutes)
	@scripts/setup run
	@$(MAKE) --no-print-directory build
	@scripts/first-answer $(VMTAX)

test: ## install what is missing, compile, run all tests; some boot guests
	@scripts/setup test
	@scripts/test

box: ## test on ordinary KVM: in a Debian with libvirt under TCG, which emulates AMD's SVM, as root (10 minutes)
	@scripts/setup box
	@$(MAKE) --no-print-directory build
	box/box test

box-full: ## the same on the kernels, QEMUs and libvirts of Debian 12, 13 and unstable; planted faults and healthy VMs on Debian 13 (1.5 hours)
	@scripts/setup box
	@$(MAKE) --no-print-directory build
	@status=0; for suite in bookworm trixie sid; do SUITE=$$suite box/box test || status=$$?; done; box/box faults || status=$$?; exit $$status

matrix: ## measure guests of every kernel with every QEMU of crates/vmtax/tests/it/matrix.rs, as root (half an hour)
	@scripts/setup test
	scripts/test --ignore-default-filter --no-capture -E 'test(=matrix::by_hand_every_kernel_with_every_qemu)'

lint: ## formatting, clippy, oldest Rust, licences, advisories, documentation with its links and examples, layers, shell scripts
	@scripts/setup lint
	$(CARGO) fmt --check -- crates/measure/workload/src/workloads/*.rs crates/measure/workload/src/workloads/*/mod.rs # which a macro declares
	$(CARGO) clippy --locked --workspace --all-targets -- -D warnings
	@# clippy's incompatible_msrv has checked the standard library's part of it; the compiler checks the language.
	@if rustup run $(MSRV) cargo --version >/dev/null 2>&1; then \
	rustup run $(MSRV) cargo check --locked --workspace --all-targets --target-dir target/msrv; \
	else echo "Rust $(MSRV) is not installed by rustup: that everything compiles with it is not checked here"; fi
	RUSTDOCFLAGS="-D warnings" $(CARGO) doc --locked --workspace --no-deps
	cargo-deny --locked check --hide-inclusion-graph bans licenses sources
	@if cargo-deny --locked fetch db 2>/dev/null; then cargo-deny --locked --offline check --hide-inclusion-graph advisories; \
	else echo "The database of RustSec cannot be reached: advisories for dependencies are not checked here"; fi
	scripts/third-party --check
	scripts/check-layers
	scripts/check-docs
	scripts/check-extending
	shellcheck scripts/* .ci/run box/box box/image packaging/install.sh packaging/compare-action

bench: ## measure vmtax beside sysbench, fio, sockperf, iperf3, Bonnie++, virtme-ng, trace-cmd; with SIMPLETRACE=FILE also simpletrace.py of QEMU
	@scripts/setup bench
	@$(MAKE) --no-print-directory build
	$(CARGO) build --release --locked --package vmtax-workload --example cost
	$(CARGO) build --release --locked --package vmtax-trace --example decode
	@status=0; bench/native.py || status=$$?; bench/bonnie.py || status=$$?; bench/boot.py || status=$$?; bench/exec.py || status=$$?; bench/layers.py || status=$$?; bench/vm_layers.py || status=$$?; bench/network.py || status=$$?; bench/top.py || status=$$?; bench/compare.py || status=$$?; bench/profile.py || status=$$?; bench/decode.py $(if $(SIMPLETRACE),--simpletrace $(SIMPLETRACE),--only rate,trace-cmd,go) || status=$$?; exit $$status

chaos: ## kill processes of running vmtax at random moments, CHAOS_KILLS (50) times, as root; goes on where it stopped
	@scripts/setup chaos
	@$(MAKE) --no-print-directory build
	@status=0; campaigns/chaos.py --kills $(CHAOS_KILLS) || status=$$?; campaigns/vm_kills.py --kills $(CHAOS_KILLS) || status=$$?; exit $$status

faults: ## make each system call of vmtax fail once, or FAULTS=N of them, as root; goes on where it stopped
	@scripts/setup faults
	@$(MAKE) --no-print-directory build
	campaigns/faults.py $(if $(FAULTS),--faults $(FAULTS))

build: ## build the release: target/x86_64-unknown-linux-gnu/release/vmtax
	$(CARGO) build --release --locked --package vmtax

install: build ## install below PREFIX (/usr/local), with man pages, completions, systemd unit, licences
	install -D -m 755 $(VMTAX) $(DESTDIR)$(PREFIX)/bin/vmtax
	install -d $(SHARE)/man/man1 $(SHARE)/bash-completion/completions $(SHARE)/zsh/site-functions \
	    $(SHARE)/fish/vendor_completions.d $(SHARE)/doc/vmtax
	$(VMTAX) man $(SHARE)/man/man1
	$(VMTAX) completions bash > $(SHARE)/bash-completion/completions/vmtax
	$(VMTAX) completions zsh > $(SHARE)/zsh/site-functions/_vmtax
	$(VMTAX) completions fish > $(SHARE)/fish/vendor_completions.d/vmtax.fish
	install -D -m 644 packaging/vmtax-exporter.service $(DESTDIR)$(PREFIX)/lib/systemd/system/vmtax-exporter.service
	install -m 644 README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE THIRD-PARTY.md packaging/grafana-dashboard.json $(SHARE)/doc/vmtax
	scripts/third-party > $(SHARE)/doc/vmtax/THIRD-PARTY-LICENSES.txt

docs: ## build docs/ as a searchable book: target/book/index.html
	@scripts/setup docs
	mdbook build docs

stage:
	@rm -rf $(STAGE)
	@$(MAKE) --no-print-directory install DESTDIR=$(STAGE) PREFIX=/usr

dist: ## make the files of a release below target/dist: archive, checksum, install.sh, PKGBUILD
	@scripts/setup build
	@$(MAKE) --no-print-directory stage
	scripts/pack $(STAGE)/usr target/dist

deb: ## make a Debian package below target/debian
	@scripts/setup deb
	@$(MAKE) --no-print-directory stage
	$(CARGO) deb --locked --package vmtax --no-build --no-strip --output target/debian/

rpm: ## make an RPM package below target/generate-rpm
	@scripts/setup rpm
	@$(MAKE) --no-print-directory stage
	$(CARGO) generate-rpm --package crates/vmtax --target-dir target --auto-req disabled

fuzz: ## give FUZZ_INPUTS (1000000) mutated inputs to the parsers of outside data; goes on where it stopped
	@scripts/setup fuzz
	$(CARGO) build --release --locked --package vmtax-fuzz
	campaigns/fuzz.py --inputs $(FUZZ_INPUTS)

clean: ## remove what was built; runs/ stays
	rm -rf target
