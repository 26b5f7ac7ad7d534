//! The binary as people use it: real guests under TCG, real faults, and what comes out. Also the rules of its own source.

// Helpers fail by panic too.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::disallowed_methods)]

mod common;

mod agent;
mod campaigns;
mod cli;
mod compare;
mod diagnose;
mod doctor;
mod escape;
mod escape_nfs;
mod exec;
mod exec_layers;
mod exec_options;
mod faults;
mod fio;
mod fio_kinds;
mod get_qemu;
mod golden;
mod guest_trace;
mod history;
mod hostile_qemu;
mod import;
mod kvm_guest;
mod kvm_network;
mod language;
mod layers;
mod layers_faults;
mod matrix;
mod mcp;
mod my_vm;
mod network;
mod ordinary_kvm;
mod other_vmms;
mod packaging;
mod page_layout;
mod planted;
mod profile;
mod profile_exits;
mod profile_inside;
mod profile_waits;
mod rights;
mod run;
mod scale;
mod secrets;
mod share;
mod share_faults;
mod slurm;
mod states;
mod structure;
mod test_vmm;
mod top;
mod top_screen;
mod tune;
mod tune_guest;
mod tune_like;
mod virtqueues;
mod vm_layers;
mod vm_network;
mod vm_settings;
