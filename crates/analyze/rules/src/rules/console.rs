//! Consoles of devices that make an exit for each byte, or more.

use crate::evidence::Register;
use crate::rule::{about_exits, instruction};
use crate::{Finding, Rule};
use vmtax_model::number::count;
use vmtax_model::{ChangeCost, Remedy, SettingPlace};

/// Bytes a second over a UART that are worth a faster console.
const MIN_BYTES_PER_S: f64 = 1000.0;

const VIRTIO_CONSOLE: Remedy<&str> = Remedy {
    place: SettingPlace::GuestCommandLine,
    setting: "kernel-args",
    value: "console=hvc0",
    action: "Use a virtio console, which takes whole buffers",
    line: "-device virtio-serial-pci -chardev stdio,id=console -device virtconsole,chardev=console # QEMU\n\
           console=hvc0 # guest kernel",
    cost: Some(ChangeCost::VmRestart),
    read_back: "/proc/consoles in the guest",
    undo: "console=ttyS0",
};

pub(super) const UART_POLLING: Rule = Rule {
    id: "uart-polling",
    finds: "the UART's line status read at least half as often as a byte is written",
    remedies: &[
        VIRTIO_CONSOLE,
        instruction("Or write without polling: QEMU's UART is always ready", ""),
    ],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): one of the changes that took getpid from \
             13,000 to 200 ns",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let polls = exits.reads(Register::UartStatus);
            let bytes = exits.writes(Register::UartData);
            let text = format!(
                "The guest polls the UART {} times to write {} bytes; each poll is a VM exit.",
                count(polls),
                count(bytes)
            );
            let is_polling = exits.many(polls) && polls * 2 >= bytes && bytes > 0;
            is_polling.then(|| Finding::with_gain(text, exits.share(polls)))
        })
    },
};

pub(super) const SERIAL_OUTPUT: Rule = Rule {
    id: "serial-output",
    finds: "1000 bytes a second and more written to a UART",
    remedies: &[
        Remedy {
            place: SettingPlace::GuestCommandLine,
            setting: "kernel-args",
            value: "quiet loglevel=3",
            action: "Log less",
            line: "quiet loglevel=3",
            cost: Some(ChangeCost::GuestReboot),
            read_back: "/proc/cmdline in the guest",
            undo: "take quiet and loglevel=3 from the guest kernel's command line",
        },
        VIRTIO_CONSOLE,
    ],
    source: "Firecracker, SPECIFICATION.md: boots in 125 ms with the serial console off",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let bytes = exits.writes(Register::UartData);
            let rate = exits.per_s(bytes);
            let text =
                format!("The guest writes {rate:.0} bytes a second to a UART: each is an exit.");
            let is_much = exits.many(bytes) && rate >= MIN_BYTES_PER_S;
            is_much.then(|| Finding::with_gain(text, exits.share(bytes)))
        })
    },
};

pub(super) const VGA_CURSOR: Rule = Rule {
    id: "vga-cursor",
    finds: "writes to the VGA's CRT controller",
    remedies: &[
        Remedy {
            place: SettingPlace::QemuArgument,
            setting: "qemu-args",
            value: "-vga none -display none",
            action: "Give the guest no VGA console",
            line: "-vga none -display none",
            cost: Some(ChangeCost::VmRestart),
            read_back: "QMP query-pci: no VGA controller",
            undo: "leave -vga none out",
        },
        instruction("Or move the cursor once a line", ""),
    ],
    source: "From 13µs to 200ns: Four Rounds of KVM Performance Work (Kevlar): four writes a character, 320 exits for a \
             line of 80",
    evaluate: |evidence| {
        about_exits(evidence, |exits| {
            let writes = exits.writes(Register::VgaCursor);
            let text = format!(
                "The guest writes {} times to the VGA's CRT controller, as it does to move the text cursor.",
                count(writes)
            );
            let is_costly = exits.many(writes) && !exits.are_cheap(writes);
            is_costly.then(|| Finding::with_gain(text, exits.share(writes)))
        })
    },
};

#[cfg(test)]
mod tests {
    use crate::evidence::Register::{UartData, UartStatus, VgaCursor};
    use crate::test_evidence::fires;

    #[test]
    fn polling_a_uart_fires_where_bytes_are_written_too() {
        assert!(fires(
            "uart-polling",
            &[(UartStatus, [600, 0, 0]), (UartData, [0, 600, 600])]
        ));
        assert!(
            !fires("uart-polling", &[(UartStatus, [600, 0, 0])]),
            "a status without output"
        );
        assert!(
            !fires(
                "uart-polling",
                &[(UartStatus, [40, 0, 0]), (UartData, [0, 40, 40])]
            ),
            "a few bytes"
        );
    }

    #[test]
    fn output_fires_from_a_thousand_bytes_a_second() {
        assert!(fires("serial-output", &[(UartData, [0, 6000, 6000])]));
        assert!(!fires("serial-output", &[(UartData, [0, 4000, 4000])]));
    }

    #[test]
    fn a_cursor_fires_when_it_moves_often() {
        assert!(fires("vga-cursor", &[(VgaCursor, [0, 600, 600])]));
        assert!(!fires("vga-cursor", &[(VgaCursor, [600, 10, 10])]), "reads");
    }
}
