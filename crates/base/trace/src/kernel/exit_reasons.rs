//! Names of the reasons for VM exits.
//!
//! A reason is a number of the CPU's instruction set: the basic exit reason of VMX, the exit code of SVM. KVM's own format
//! file names it; where that names none, the tables here do.

use crate::format::{Symbols, SymbolsCondition};
use std::collections::BTreeMap;

/// The instruction set VMX of Intel, as `kvm_exit` has it (`KVM_ISA_VMX`).
pub const VMX: u32 = 1;
/// The instruction set SVM of AMD (`KVM_ISA_SVM`).
pub const SVM: u32 = 2;
/// The instruction set of reasons that a trace's own text names and no table here does; no kernel has it.
pub(crate) const NAMED_IN_TEXT: u32 = u32::MAX;

/// Bits 0 to 15 of VMX's exit reason are the reason; the others say how the guest was left.
const VMX_BASIC_REASON: u64 = 0xffff;

/// The names of exit reasons in a trace.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ExitReasons {
    vmx: BTreeMap<u64, String>,
    svm: BTreeMap<u64, String>,
    in_text: BTreeMap<u64, String>,
}

impl ExitReasons {
    /// The names for each instruction set in the tables of a format of `kvm_exit`. A table whose condition is of another
    /// kind is left out: nothing says of which instruction set it is.
    pub fn from_tables(tables: &[Symbols]) -> ExitReasons {
        let table = |isa: u32| {
            let is_of = |when: &SymbolsCondition| match when {
                SymbolsCondition::Always => isa != NAMED_IN_TEXT,
                SymbolsCondition::Equal(field, value) => field == "isa" && *value == u64::from(isa),
                SymbolsCondition::NotEqual(field, value) => {
                    field == "isa" && *value != u64::from(isa) && isa != NAMED_IN_TEXT
                }
                SymbolsCondition::Unknown => false,
            };
            let found = tables.iter().find(|symbols| is_of(&symbols.when));
            found.map_or_else(BTreeMap::new, |symbols| symbols.names.clone())
        };
        ExitReasons {
            vmx: table(VMX),
            svm: table(SVM),
            in_text: table(NAMED_IN_TEXT),
        }
    }

    /// The name of an exit reason: the format's, else that of the tables here, else `unknown (0x78)`. A damaged format
    /// never gives a reason the name of another.
    pub fn name(&self, isa: u32, reason: u64) -> String {
        let unknown = || format!("unknown ({reason:#x})");
        let (names, number) = match isa {
            VMX => (&self.vmx, reason & VMX_BASIC_REASON),
            // The exit code has 64 bits, of which KVM records 32: -1 is 0xffffffff.
            SVM => (&self.svm, reason & u64::from(u32::MAX)),
            NAMED_IN_TEXT => return self.in_text.get(&reason).cloned().unwrap_or_else(unknown),
            _ => return unknown(),
        };
        let sign_extended = number as u32 as i32 as u64;
        let name = names
            .get(&number)
            .or_else(|| names.get(&sign_extended).filter(|_| isa == SVM));
        let is_of_another =
            |name: &&String| exit_reason_named(name).is_some_and(|known| known != (isa, number));
        let own = || {
            known(isa)
                .iter()
                .find(|(known, _)| *known == number)
                .map(|(_, name)| (*name).to_owned())
        };
        name.filter(|name| !is_of_another(name))
            .cloned()
            .or_else(own)
            .unwrap_or_else(unknown)
    }
}

/// The instruction set and the number of a reason, by the kernel's name.
pub(crate) fn exit_reason_named(name: &str) -> Option<(u32, u64)> {
    [VMX, SVM].into_iter().find_map(|isa| {
        let reason = known(isa).iter().find(|(_, known)| *known == name);
        reason.map(|(number, _)| (isa, *number))
    })
}

fn known(isa: u32) -> &'static [(u64, &'static str)] {
    match isa {
        VMX => VMX_REASONS,
        SVM => SVM_CODES,
        _ => &[],
    }
}

/// `VMX_EXIT_REASONS` in `arch/x86/include/uapi/asm/vmx.h`.
const VMX_REASONS: &[(u64, &str)] = &[
    (0, "EXCEPTION_NMI"),
    (1, "EXTERNAL_INTERRUPT"),
    (2, "TRIPLE_FAULT"),
    (3, "INIT_SIGNAL"),
    (4, "SIPI_SIGNAL"),
    (7, "INTERRUPT_WINDOW"),
    (8, "NMI_WINDOW"),
    (9, "TASK_SWITCH"),
    (10, "CPUID"),
    (12, "HLT"),
    (13, "INVD"),
    (14, "INVLPG"),
    (15, "RDPMC"),
    (16, "RDTSC"),
    (18, "VMCALL"),
    (19, "VMCLEAR"),
    (20, "VMLAUNCH"),
    (21, "VMPTRLD"),
    (22, "VMPTRST"),
    (23, "VMREAD"),
    (24, "VMRESUME"),
    (25, "VMWRITE"),
    (26, "VMOFF"),
    (27, "VMON"),
    (28, "CR_ACCESS"),
    (29, "DR_ACCESS"),
    (30, "IO_INSTRUCTION"),
    (31, "MSR_READ"),
    (32, "MSR_WRITE"),
    (33, "INVALID_STATE"),
    (34, "MSR_LOAD_FAIL"),
    (36, "MWAIT_INSTRUCTION"),
    (37, "MONITOR_TRAP_FLAG"),
    (39, "MONITOR_INSTRUCTION"),
    (40, "PAUSE_INSTRUCTION"),
    (41, "MCE_DURING_VMENTRY"),
    (43, "TPR_BELOW_THRESHOLD"),
    (44, "APIC_ACCESS"),
    (45, "EOI_INDUCED"),
    (46, "GDTR_IDTR"),
    (47, "LDTR_TR"),
    (48, "EPT_VIOLATION"),
    (49, "EPT_MISCONFIG"),
    (50, "INVEPT"),
    (51, "RDTSCP"),
    (52, "PREEMPTION_TIMER"),
    (53, "INVVPID"),
    (54, "WBINVD"),
    (55, "XSETBV"),
    (56, "APIC_WRITE"),
    (57, "RDRAND"),
    (58, "INVPCID"),
    (59, "VMFUNC"),
    (60, "ENCLS"),
    (61, "RDSEED"),
    (62, "PML_FULL"),
    (63, "XSAVES"),
    (64, "XRSTORS"),
    (67, "UMWAIT"),
    (68, "TPAUSE"),
    (74, "BUS_LOCK"),
    (75, "NOTIFY"),
    (77, "TDCALL"),
    (84, "MSR_READ_IMM"),
    (85, "MSR_WRITE_IMM"),
];

/// `SVM_EXIT_REASONS` in `arch/x86/include/uapi/asm/svm.h`, and codes that have only a number there.
const SVM_CODES: &[(u64, &str)] = &[
    (0x000, "read_cr0"),
    (0x002, "read_cr2"),
    (0x003, "read_cr3"),
    (0x004, "read_cr4"),
    (0x008, "read_cr8"),
    (0x010, "write_cr0"),
    (0x012, "write_cr2"),
    (0x013, "write_cr3"),
    (0x014, "write_cr4"),
    (0x018, "write_cr8"),
    (0x020, "read_dr0"),
    (0x021, "read_dr1"),
    (0x022, "read_dr2"),
    (0x023, "read_dr3"),
    (0x024, "read_dr4"),
    (0x025, "read_dr5"),
    (0x026, "read_dr6"),
    (0x027, "read_dr7"),
    (0x030, "write_dr0"),
    (0x031, "write_dr1"),
    (0x032, "write_dr2"),
    (0x033, "write_dr3"),
    (0x034, "write_dr4"),
    (0x035, "write_dr5"),
    (0x036, "write_dr6"),
    (0x037, "write_dr7"),
    (0x040, "DE excp"),
    (0x041, "DB excp"),
    (0x043, "BP excp"),
    (0x044, "OF excp"),
    (0x045, "BR excp"),
    (0x046, "UD excp"),
    (0x047, "NM excp"),
    (0x048, "DF excp"),
    (0x04a, "TS excp"),
    (0x04b, "NP excp"),
    (0x04c, "SS excp"),
    (0x04d, "GP excp"),
    (0x04e, "PF excp"),
    (0x050, "MF excp"),
    (0x051, "AC excp"),
    (0x052, "MC excp"),
    (0x053, "XF excp"),
    (0x060, "interrupt"),
    (0x061, "nmi"),
    (0x062, "smi"),
    (0x063, "init"),
    (0x064, "vintr"),
    (0x065, "cr0_sel_write"),
    (0x066, "read_idtr"),
    (0x067, "read_gdtr"),
    (0x068, "read_ldtr"),
    (0x069, "read_rt"),
    (0x06a, "write_idtr"),
    (0x06b, "write_gdtr"),
    (0x06c, "write_ldtr"),
    (0x06d, "write_rt"),
    (0x06e, "rdtsc"),
    (0x06f, "rdpmc"),
    (0x070, "pushf"),
    (0x071, "popf"),
    (0x072, "cpuid"),
    (0x073, "rsm"),
    (0x074, "iret"),
    (0x075, "swint"),
    (0x076, "invd"),
    (0x077, "pause"),
    (0x078, "hlt"),
    (0x079, "invlpg"),
    (0x07a, "invlpga"),
    (0x07b, "io"),
    (0x07c, "msr"),
    (0x07d, "task_switch"),
    (0x07e, "ferr_freeze"),
    (0x07f, "shutdown"),
    (0x080, "vmrun"),
    (0x081, "hypercall"),
    (0x082, "vmload"),
    (0x083, "vmsave"),
    (0x084, "stgi"),
    (0x085, "clgi"),
    (0x086, "skinit"),
    (0x087, "rdtscp"),
    (0x088, "icebp"),
    (0x089, "wbinvd"),
    (0x08a, "monitor"),
    (0x08b, "mwait"),
    (0x08c, "mwait_cond"),
    (0x08d, "xsetbv"),
    (0x08e, "rdpru"),
    (0x08f, "write_efer_trap"),
    (0x090, "write_cr0_trap"),
    (0x094, "write_cr4_trap"),
    (0x098, "write_cr8_trap"),
    (0x0a2, "invpcid"),
    (0x0a5, "buslock"),
    (0x0a6, "idle-halt"),
    (0x400, "npf"),
    (0x401, "avic_incomplete_ipi"),
    (0x402, "avic_unaccelerated_access"),
    (0x403, "vmgexit"),
    (0x8000_0001, "vmgexit_mmio_read"),
    (0x8000_0002, "vmgexit_mmio_write"),
    (0x8000_0003, "vmgexit_nmi_complete"),
    (0x8000_0004, "vmgexit_ap_hlt_loop"),
    (0x8000_0005, "vmgexit_ap_jump_table"),
    (0x8000_0010, "vmgexit_page_state_change"),
    (0x8000_0011, "vmgexit_guest_request"),
    (0x8000_0012, "vmgexit_ext_guest_request"),
    (0x8000_0013, "vmgexit_ap_creation"),
    (0x8000_fffd, "vmgexit_hypervisor_feature"),
    (0xffff_ffff, "invalid_guest_state"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::symbols;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    /// The print formats of Debian's kernels, with the reasons that they name of VMX and of SVM.
    const FORMATS: [(&str, usize, usize); 3] = [
        (include_str!("../../tests/data/kvm/kvm_exit.5.10"), 59, 93),
        (FORMAT, 62, 108),
        (include_str!("../../tests/data/kvm/kvm_exit.7.2"), 65, 110),
    ];
    /// The print format of Linux 6.12.
    const FORMAT: &str = include_str!("../../tests/data/kvm/kvm_exit.6.12");

    fn parsed(format: &str) -> ExitReasons {
        ExitReasons::from_tables(&symbols(format))
    }

    /// The reasons that a kernel names, read from its text by another way: by its pairs alone.
    fn real(format: &str) -> Vec<(u32, u64, String)> {
        let (vmx, rest) = format.split_once(") : __print_symbolic").unwrap();
        let (svm, _) = rest.split_once("(REC->isa == 1 &&").unwrap();
        let pairs = |isa, text: &str| -> Vec<(u32, u64, String)> {
            let pair = |pair: &str| {
                let (number, name) = pair.split_once(", \"").unwrap();
                let parse = |text: &str| match text.trim_end_matches("ull").strip_prefix("0x") {
                    Some(digits) => u64::from_str_radix(digits, 16).unwrap(),
                    None if text.starts_with("-1") => 0xffff_ffff,
                    None => text.parse().unwrap(),
                };
                (
                    isa,
                    number.split(" + ").map(parse).sum(),
                    name.split_once('"').unwrap().0.to_owned(),
                )
            };
            text.split("{ ").skip(1).map(pair).collect()
        };
        [pairs(VMX, vmx), pairs(SVM, svm)].concat()
    }

    #[test]
    fn each_reason_of_a_real_kernel_has_its_name_by_the_records_instruction_set() {
        for (format, vmx, svm) in FORMATS {
            let real = real(format);
            assert_eq!(
                (
                    real.iter().filter(|(isa, ..)| *isa == VMX).count(),
                    real.len()
                ),
                (vmx, vmx + svm)
            );
            let (reasons, own) = (parsed(format), ExitReasons::default());
            assert_eq!(
                (reasons.vmx.len(), reasons.svm.len()),
                (vmx, svm),
                "all pairs are read"
            );
            for (isa, number, name) in &real {
                assert_eq!(
                    (&reasons.name(*isa, *number), &own.name(*isa, *number)),
                    (name, name),
                    "{isa} {number:#x}"
                );
            }
        }
        let reasons = parsed(FORMAT);
        assert_eq!(
            (reasons.name(SVM, 0x78), reasons.name(VMX, 0x78)),
            ("hlt".to_owned(), "unknown (0x78)".to_owned())
        );
        assert_eq!(
            (reasons.name(VMX, 12), reasons.name(SVM, 12)),
            ("HLT".to_owned(), "unknown (0xc)".to_owned())
        );
        assert_eq!(reasons.name(SVM, 0x50), "MF excp", "a sum");
        assert_eq!(
            reasons.name(VMX, 0x8000_0021),
            "INVALID_STATE",
            "with the flag of a failed entry"
        );
        assert_eq!(reasons.name(SVM, 0x8000_0001), "vmgexit_mmio_read");
        // A newer CPU's, which that kernel does not name.
        assert_eq!(reasons.name(SVM, 0xa6), "idle-halt");
    }

    #[test]
    fn an_unknown_instruction_set_names_nothing() {
        let reasons = parsed(FORMAT);
        for (isa, number, _) in real(FORMAT) {
            for other in [0, 3, 7, NAMED_IN_TEXT] {
                assert_eq!(
                    reasons.name(other, number),
                    format!("unknown ({number:#x})"),
                    "{isa}"
                );
            }
        }
    }

    #[test]
    fn a_format_may_choose_in_another_order_and_its_own_names_come_first() {
        let text = "print fmt: \"%s\", (REC->isa == 2) ? __print_symbolic(REC->exit_reason, { 0x999, \"new\" }, \
            { 0x78, \"halt\" }) : __print_symbolic(REC->exit_reason & 0xffff, { 99, \"NEW\" })";
        let reasons = parsed(text);
        assert_eq!(
            (reasons.name(SVM, 0x999), reasons.name(VMX, 99)),
            ("new".to_owned(), "NEW".to_owned())
        );
        assert_eq!(
            (reasons.name(SVM, 0x78), reasons.name(VMX, 0x999)),
            ("halt".to_owned(), "unknown (0x999)".to_owned())
        );
    }

    #[test]
    fn names_and_numbers_are_each_of_one_reason() {
        for isa in [VMX, SVM] {
            let numbers: BTreeSet<u64> = known(isa).iter().map(|(number, _)| *number).collect();
            assert_eq!(numbers.len(), known(isa).len());
        }
        let names: BTreeSet<&str> = [VMX, SVM]
            .iter()
            .flat_map(|isa| known(*isa))
            .map(|(_, name)| *name)
            .collect();
        assert_eq!(names.len(), VMX_REASONS.len() + SVM_CODES.len());
    }

    /// Checks that each reason has its own name, or one that no other reason has.
    fn names_no_other(format: &str) -> Result<(), TestCaseError> {
        let (reasons, real) = (parsed(format), real(FORMAT));
        let names: BTreeSet<&str> = real.iter().map(|(_, _, name)| name.as_str()).collect();
        for (isa, number, name) in &real {
            let found = reasons.name(*isa, *number);
            prop_assert!(
                found == *name || !names.contains(found.as_str()),
                "{} of {} {:#x}",
                found,
                isa,
                number
            );
            prop_assert_eq!(reasons.name(0, *number), format!("unknown ({number:#x})"));
        }
        Ok(())
    }

    proptest! {
        #[test]
        fn a_format_that_is_cut_off_still_names_each_reason(end in 0..FORMAT.len()) {
            let reasons = parsed(&FORMAT[..end]);
            for (isa, number, name) in real(FORMAT) {
                prop_assert_eq!(reasons.name(isa, number), name);
            }
        }

        #[test]
        fn a_format_without_a_piece_names_no_reason_as_another(a in 0..FORMAT.len(), b in 0..FORMAT.len()) {
            let (begin, end) = (a.min(b), a.max(b));
            names_no_other(&format!("{}{}", &FORMAT[..begin], &FORMAT[end..]))?;
        }

        #[test]
        fn a_format_in_another_order_names_no_reason_as_another(cuts in proptest::collection::vec(11..FORMAT.len(), 4)) {
            let mut cuts = cuts;
            cuts.sort_unstable();
            let [a, b, c, d] = cuts[..] else { unreachable!() };
            let pieces = [&FORMAT[..a], &FORMAT[c..d], &FORMAT[b..c], &FORMAT[a..b], &FORMAT[d..]];
            names_no_other(&pieces.concat())?;
        }

        #[test]
        fn tables_in_exchanged_branches_name_no_reason_as_another(condition in "\\(?(REC->isa (==|!=) [0-3]|REC->isa|REC->vcpu_id == 1)\\)?") {
            names_no_other(&FORMAT.replacen("(REC->isa == 1)", &condition, 1))?;
        }
    }
}
