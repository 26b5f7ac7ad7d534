//! `vmtax get` and `vmtax build`: what guests are made of.

use clap::{Args, Subcommand};

#[derive(Debug, Args)]
pub struct GetArgs {
    #[command(subcommand)]
    pub what: Option<GetWhat>,
}

#[derive(Debug, Subcommand)]
pub enum GetWhat {
    /// A guest kernel with its modules, unpacked into the cache
    #[command(
        after_help = "Guests boot the host's own kernel where it is installed, else the default of the cache: the distribution's
current one. A VERSION or SUITE is for --kernel VERSION or --kernel SUITE; it does not become the default of other runs.

Examples:
  vmtax get kernel
  vmtax get kernel 6.1
  vmtax get kernel sid"
    )]
    Kernel {
        /// A release or its beginning, or a suite of the distribution; the distribution's current one when absent
        #[arg(value_name = "VERSION|SUITE")]
        wanted: Option<String>,
    },
    /// Another QEMU with its libraries and firmware, unpacked into the cache, for `--qemu VERSION` or `--qemu SUITE`
    #[command(
        after_help = "Several can exist side by side, and the system's own stays as it is: docs/qemus.md.
`vmtax get` lists the suites that are known; any other of the distribution's archive may be named too.

Examples:
  vmtax get qemu              those on this host, and those available
  vmtax get qemu 5.2
  vmtax get qemu bookworm-backports
  vmtax run --qemu 5.2 --quick"
    )]
    Qemu {
        /// A version or its beginning, or a suite of the distribution
        #[arg(value_name = "VERSION|SUITE")]
        wanted: Option<String>,
    },
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    #[command(subcommand)]
    pub what: BuildWhat,
}

#[derive(Debug, Subcommand)]
pub enum BuildWhat {
    /// A lean QEMU for x86-64, from the distribution's source or a tree of your own, with patches
    #[command(
        after_help = "It is built once, in a few minutes, into the cache; the system's own QEMU is not changed. \
Every --qemu takes its name, which `vmtax get qemu` lists: docs/qemus.md.
Patches that come with vmtax:
  9p-list   the 9p server searches its fids in a list, as before 7.2
  cpu-loop  TCG's loop as in 3.0, without three changes that were published as faster

Examples:
  vmtax build qemu 7.2
  vmtax build qemu 7.2 --patch 9p-list
  vmtax run --qemu built-9p-list
  vmtax build qemu ~/src/qemu --patch ./faster.patch --configure '--enable-lto --extra-cflags=-O3'"
    )]
    Qemu {
        /// A directory with QEMU's source, or a version or suite of the distribution
        #[arg(value_name = "SRC|VERSION")]
        source: String,
        /// Apply this patch (-p1): a file, or one that comes with vmtax; may be repeated
        #[arg(long, value_name = "FILE")]
        patch: Vec<String>,
        /// More options for QEMU's configure, separated by blanks; may be repeated
        #[arg(long, value_name = "OPTIONS", allow_hyphen_values = true)]
        configure: Vec<String>,
    },
}
