//! KVMs of other architectures: their events have the names of x86-64's, but other fields.
//!
//! Source: `trace*.h` of `arch/*/kvm` in Linux.

use crate::{Format, Formats};

const ARM: &str = "ARM";
const RISCV: &str = "RISC-V";
const S390: &str = "s390";
const POWERPC: &str = "PowerPC";
const LOONGARCH: &str = "LoongArch";
const MIPS: &str = "MIPS";
/// The events that both have do not say which it is.
const LOONGARCH_OR_MIPS: &str = "LoongArch or MIPS";

/// Subsystems that only one architecture has.
const SYSTEMS: &[(&str, &str)] = &[
    ("kvm_hv", POWERPC),
    ("kvm_pr", POWERPC),
    ("kvm_booke", POWERPC),
    ("kvm-s390", S390),
];

/// Beginnings of the names of events that only one architecture has.
const EVENTS: &[(&str, &str)] = &[
    ("kvm_timer_", ARM),
    ("kvm_get_timer_map", ARM),
    ("kvm_wfx_arm64", ARM),
    ("kvm_hvc_arm64", ARM),
    ("kvm_arm_", ARM),
    ("kvm_guest_fault", ARM),
    ("kvm_sys_access", ARM),
    ("kvm_handle_sys_reg", ARM),
    ("kvm_set_way_flush", ARM),
    ("kvm_toggle_cache", ARM),
    ("vgic_update_irq_pending", ARM),
    ("kvm_s390_", S390),
    ("kvm_guest_enter", POWERPC),
    ("kvm_guest_exit", POWERPC),
    ("kvm_hcall_", POWERPC),
    ("kvm_ppc_", POWERPC),
    ("kvm_book3s_", POWERPC),
    ("kvm_booke", POWERPC),
    ("kvm_vpid_change", LOONGARCH),
    ("kvm_asid_change", MIPS),
    ("kvm_guestid_change", MIPS),
    ("kvm_hwr", MIPS),
];

/// Whole names of events: x86's own `kvm_enter_smm` begins as one of them.
const EVENT_NAMES: &[(&str, &str)] = &[
    ("kvm_enter", LOONGARCH_OR_MIPS),
    ("kvm_reenter", LOONGARCH_OR_MIPS),
];

/// Fields of `kvm_exit` that only one architecture has.
const EXIT_FIELDS: &[(&str, &str)] = &[("esr_ec", ARM), ("scause", RISCV), ("exit_nr", POWERPC)];

/// Texts that `kvm_exit` of one architecture prints.
const EXIT_TEXTS: &[(&str, &str)] = &[
    ("HSR_EC:", ARM),
    ("ESR_EC:", ARM),
    ("SCAUSE:", RISCV),
    ("exit=", POWERPC),
    ("]PC:", LOONGARCH_OR_MIPS),
    ("esr_ec=", ARM),
    ("scause=", RISCV),
    ("exit_nr=", POWERPC),
];

/// Returns the architecture of a trace's KVM if it is not x86-64.
pub fn foreign_kvm(formats: &Formats) -> Option<&'static str> {
    // x86's own exit is surer than the events beside it: some are common to all architectures since one kernel or the next.
    let exit = formats
        .event("kvm", "kvm_exit")
        .and_then(|id| formats.get(id));
    if exit.is_some_and(|exit| exit.field("exit_reason").is_some()) {
        return None;
    }
    formats.iter().find_map(|(_, format)| of_format(format))
}

fn of_format(format: &Format) -> Option<&'static str> {
    if let Some((_, name)) = SYSTEMS.iter().find(|(system, _)| *system == format.system) {
        return Some(name);
    }
    if format.system != "kvm" {
        return None;
    }
    let has = |field: &str| format.field(field).is_some();
    of_event(&format.name).or_else(|| match format.name.as_str() {
        "kvm_exit" if !has("exit_reason") => {
            let found = EXIT_FIELDS.iter().find(|(field, _)| has(field));
            let other = (has("pc") && has("reason")).then_some(LOONGARCH_OR_MIPS);
            found.map(|(_, name)| *name).or(other)
        }
        _ => None,
    })
}

/// Returns the architecture of the KVM that printed an event if it is not x86-64.
pub(crate) fn foreign_kvm_line(event: &str, arguments: &str) -> Option<&'static str> {
    of_event(event).or_else(|| {
        let is_exit = event == "kvm_exit" && !arguments.contains("exit_reason=");
        let found = EXIT_TEXTS
            .iter()
            .find(|(text, _)| is_exit && arguments.contains(text));
        found.map(|(_, name)| *name)
    })
}

fn of_event(event: &str) -> Option<&'static str> {
    let begins = |(begin, _): &&(&str, &str)| event.starts_with(begin);
    let is_whole = |(name, _): &&(&str, &str)| *name == event;
    let found = EVENTS.iter().find(begins);
    found
        .or_else(|| EVENT_NAMES.iter().find(is_whole))
        .map(|(_, name)| *name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kvm_of_another_architecture_has_its_name() {
        let lines = [
            (
                "kvm_exit",
                "TRAP: HSR_EC: 0x0024 (DABT_LOW), PC: 0x0000ffff80e79e4a",
                Some(ARM),
            ),
            (
                "kvm_exit",
                "[FAILED TO PARSE] ret=2 esr_ec=36 vcpu_pc=0xffff80e79e4a",
                Some(ARM),
            ),
            (
                "kvm_timer_update_irq",
                "VCPU: 0, IRQ 27, level 1",
                Some(ARM),
            ),
            (
                "kvm_exit",
                "SEPC:0x80, SCAUSE:0x15, STVAL:0x0, HTVAL:0x0, HTINST:0x0",
                Some(RISCV),
            ),
            (
                "kvm_s390_sie_enter",
                "02[0704c001-00]: entering sie",
                Some(S390),
            ),
            (
                "kvm_exit",
                "exit=EXTERNAL | pc=0xc0 | msr=0x0",
                Some(POWERPC),
            ),
            (
                "kvm_guest_exit",
                "VCPU 0: trap=HDEC pc=0xc0 msr=0x0",
                Some(POWERPC),
            ),
            (
                "kvm_exit",
                "[Idle]PC: 0x9000000000221f60",
                Some(LOONGARCH_OR_MIPS),
            ),
            (
                "kvm_exit",
                "vcpu 0 reason HLT rip 0xffffffff81c921fa info1 0x0",
                None,
            ),
            ("kvm_exit", "reason EXIT_HLT rip 0x1 info 0 0", None),
            (
                "kvm_exit",
                "[FAILED TO PARSE] exit_reason=12 isa=1 guest_rip=0x1",
                None,
            ),
            ("kvm_entry", "vcpu 0, rip 0x1", None),
            ("kvm_hv_timer_state", "vcpu_id 0 hv_timer 1", None),
            (
                "kvm_enter_smm",
                "vcpu 0: entering SMM, smbase 0x30000",
                None,
            ),
            ("kvm_iocsr", "iocsr read len 4 gpa 0x1 val 0x0", None),
            (
                "kvm_enter",
                "PC: 0x9000000000221f60",
                Some(LOONGARCH_OR_MIPS),
            ),
        ];
        for (event, arguments, expected) in lines {
            assert_eq!(
                foreign_kvm_line(event, arguments),
                expected,
                "{event}: {arguments}"
            );
        }
    }

    #[test]
    fn fields_of_formats_tell_the_architecture() {
        let found = |system: &str, name: &str, fields: &[&str]| {
            let common = "\tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
                 \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n";
            let field = |(n, name): (usize, &&str)| {
                format!(
                    "\tfield:u64 {name};\toffset:{};\tsize:8;\tsigned:0;\n",
                    8 + 8 * n
                )
            };
            let fields: String = fields.iter().enumerate().map(field).collect();
            let mut formats = Formats::default();
            let text = format!("name: {name}\nID: 7\nformat:\n{common}{fields}");
            formats.add(system, &text).unwrap();
            foreign_kvm(&formats)
        };
        assert_eq!(
            found("kvm", "kvm_exit", &["ret", "esr_ec", "vcpu_pc"]),
            Some(ARM)
        );
        assert_eq!(found("kvm", "kvm_exit", &["sepc", "scause"]), Some(RISCV));
        assert_eq!(
            found("kvm", "kvm_exit", &["pc", "reason"]),
            Some(LOONGARCH_OR_MIPS)
        );
        assert_eq!(
            found("kvm_hv", "kvm_guest_exit", &["vcpu_id"]),
            Some(POWERPC)
        );
        assert_eq!(found("kvm", "kvm_s390_sie_enter", &["id"]), Some(S390));
        assert_eq!(
            found("kvm", "kvm_exit", &["exit_reason", "guest_rip", "isa"]),
            None
        );
        assert_eq!(found("block", "kvm_enter", &["x"]), None);
    }
}
