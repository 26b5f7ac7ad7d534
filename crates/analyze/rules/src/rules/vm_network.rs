//! Rules about the path of a running VM's packets to the host: by its counters and its profile.

use super::vm_cpu::BUSY_THREAD;
use crate::evidence::MIN_SHARE;
use crate::rule::{about_vm, instruction, measurement};
use crate::{Finding, Rule};
use vmtax_findings::{FunctionShare, NicRates, ProfileFindings, SampleShare, VmRates};
use vmtax_model::number::{percent, significant};
use vmtax_model::{NetBackend, Remedy, Role, Setting};

/// The lower end of slirp's part of a VM's CPU time from which on another backend is worth a try.
const MIN_SLIRP: f64 = 0.02;
/// Bytes of a packet that fills a card of 1,500 bytes, with the link's header.
const FULL_PACKET: f64 = 1514.0;
/// Above this part of it on average, nearly all packets are full: bulk data, of which none was merged.
const MOSTLY_FULL: f64 = 0.95;
/// Fewer packets a second are not what keeps a main loop busy: each takes it some 10 µs.
const MAIN_LOOP_PACKETS_PER_S: f64 = 10_000.0;
/// Fewer full packets a second are no load.
const MANY_PACKETS_PER_S: f64 = 1000.0;

pub(super) const PASST: Remedy<&str> = Setting::named("backend").remedy(
    "passt",
    "Use passt as the backend: a separate process, which needs no privileges",
);

pub(super) const VM_SLIRP: Rule = Rule {
    id: "vm-slirp",
    finds: "a QEMU whose user-mode network (slirp) takes a twentieth of its CPU time and more",
    remedies: &[
        PASST,
        Setting::named("backend")
            .remedy("tap", "Or use a tap, which needs a bridge and privileges"),
        measurement(
            "Measure how much faster that is",
            "vmtax compare backend=user backend=passt backend=tap -- net-stream",
        ),
    ],
    source: "the-void-ia/void-box#81: a connection by slirp takes 2.6 times as long as by passt",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let profile = evidence.profile?;
            let slirp = slirp(profile)
                .filter(|slirp| slirp.share >= MIN_SHARE && slirp.low >= MIN_SLIRP)?;
            let full = f64::from(profile.hz) * profile.seconds;
            let text = format!(
                "QEMU's user-mode network (slirp) takes {} of the VM's CPU time (95 % CI {} to {}), in QEMU's main loop.",
                percent(slirp.share),
                percent(slirp.low),
                percent(slirp.high)
            );
            let gain = if full > 0.0 {
                (slirp.samples as f64 / full).min(1.0)
            } else {
                0.0
            };
            Some(Finding::of_vm(vm, text, gain))
        })
    },
};

/// The function of slirp with most samples in it and in what it calls.
fn slirp(profile: &ProfileFindings) -> Option<SampleShare> {
    let is_slirp = |function: &&FunctionShare| {
        let file = function.module.rsplit('/').next().unwrap_or_default();
        file.starts_with("libslirp.so")
    };
    profile
        .functions
        .iter()
        .filter(is_slirp)
        .map(|function| function.total)
        .max_by_key(|total| total.samples)
}

pub(super) const VM_SMALL_SEGMENTS: Rule = Rule {
    id: "vm-small-segments",
    finds: "a thousand and more packets a second of a VM that are as long as an MTU of 1,500 bytes allows, as without segmentation offload",
    remedies: &[
        instruction(
            "See which offloads the guest's NIC has",
            "ethtool -k eth0 # in the guest",
        ),
        Remedy { line: "-device virtio-net-pci,…,csum=on,gso=on,host_tso4=on,host_tso6=on,guest_csum=on,guest_tso4=on,guest_tso6=on", ..Setting::named("host_tso4").remedy("on", "Enable checksum offload and TSO of the card: the guest hands over packets of up to 64 KiB, and the host segments them if necessary") },
        instruction(
            "Or enable TSO, GSO and GRO in the guest, if they are off there",
            "ethtool -K eth0 tso on gso on gro on",
        ),
    ],
    source: "Linux kernel documentation, Segmentation Offloads",
    evaluate: |evidence| {
        let finding = |vm: &VmRates, nic: &NicRates| {
            let ways = [
                ("from", nic.tx_packets_per_s, nic.tx_bytes_per_s),
                ("to", nic.rx_packets_per_s, nic.rx_bytes_per_s),
            ];
            let is_small = |(_, packets, bytes): &(&str, f64, f64)| {
                *packets >= MANY_PACKETS_PER_S
                    && (MOSTLY_FULL * FULL_PACKET..=FULL_PACKET).contains(&(bytes / packets))
            };
            let (way, packets, bytes) = ways.into_iter().find(is_small)?;
            let text = format!(
                "Each second {} packets {way} the guest pass {}, of {:.0} bytes on average: full packets at an MTU of 1,500 bytes, not merged.",
                significant(packets),
                nic.tap,
                bytes / packets
            );
            Some(Finding::of_vm(vm, text, 0.0))
        };
        evidence
            .vm
            .into_iter()
            .flat_map(|vm| vm.nics.iter().filter_map(|nic| finding(vm, nic)))
            .collect()
    },
};

pub(super) const VM_TAP_IN_MAIN_LOOP: Rule = Rule {
    id: "vm-tap-in-main-loop",
    finds: "a main loop that is on a CPU four fifths of the time and more, and moves ten thousand and more packets a second of taps without vhost-net",
    remedies: &[
        Setting::named(NetBackend::VHOST).remedy("on", "Use vhost-net: the host's kernel moves the packets, with one thread for each queue (host: `modprobe vhost_net`)"),
        measurement(
            "See where the time of a packet goes",
            "vmtax layers --device net --vm VM",
        ),
    ],
    source: "Linux, drivers/vhost/Kconfig, VHOST_NET",
    evaluate: |evidence| {
        about_vm(evidence, |vm| {
            let mut threads = vm.threads.iter();
            let main =
                threads.find(|thread| thread.role == Role::Main && thread.run >= BUSY_THREAD)?;
            let taps = || vm.nics.iter().filter(|nic| !nic.vhost);
            let packets = taps().map(|nic| nic.rx_packets_per_s + nic.tx_packets_per_s);
            let packets: f64 = packets.sum();
            let names: Vec<&str> = taps().map(|nic| nic.tap.as_str()).collect();
            let text = format!(
                "QEMU's main loop (TID {}) is on a CPU {} of the time and moves {} packets a second of {}: it alone serves all queues of a NIC without vhost-net.",
                main.tid,
                percent(main.run),
                significant(packets),
                names.join(", ")
            );
            (packets >= MAIN_LOOP_PACKETS_PER_S).then(|| Finding::of_vm(vm, text, 0.0))
        })
    },
};

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Evidence;
    use crate::test_evidence::{advice, findings};
    use vmtax_findings::ThreadRates;

    #[test]
    fn slirp_is_found_by_its_samples() {
        let finding_and_gain = |module: &str, share: f64, low: f64| {
            let function = |name: &str, share: f64| FunctionShare {
                name: name.to_owned(),
                module: module.to_owned(),
                layer: "library".to_owned(),
                named: true,
                inside: SampleShare::default(),
                total: SampleShare {
                    samples: (share * 100.0) as u64,
                    share,
                    low,
                    high: 2.0 * share,
                },
            };
            let functions = vec![
                function("tcp_output", share / 2.0),
                function("slirp_input", share),
            ];
            let profile = ProfileFindings {
                seconds: 2.0,
                hz: 100,
                samples: 100,
                functions,
                ..ProfileFindings::default()
            };
            let vm = VmRates::default();
            let found = advice(
                "vm-slirp",
                &Evidence {
                    vm: Some(&vm),
                    profile: Some(&profile),
                    ..Evidence::default()
                },
            );
            found
                .first()
                .map(|found| (found.finding.replace('\u{a0}', " "), found.gain))
        };
        let text = "QEMU's user-mode network (slirp) takes 40 % of the VM's CPU time (95 % CI 30 % to 80 %), in QEMU's main loop.";
        let slirp = "/usr/lib/x86_64-linux-gnu/libslirp.so.0.4.0";
        assert_eq!(
            finding_and_gain(slirp, 0.4, 0.3),
            Some((text.to_owned(), 0.2))
        );
        // Little, few samples, another library.
        assert_eq!(
            [
                finding_and_gain(slirp, 0.04, 0.03),
                finding_and_gain(slirp, 0.1, 0.01),
                finding_and_gain("/usr/lib/libglib-2.0.so.0", 0.9, 0.8)
            ],
            [None, None, None]
        );
    }

    #[test]
    fn a_main_loop_that_packets_keep_busy_is_found() {
        let findings_for = |role: Role, run: f64, packets: f64, vhost: bool| {
            let nic = NicRates {
                tap: "tap0".to_owned(),
                tx_packets_per_s: packets,
                vhost,
                ..NicRates::default()
            };
            let thread = ThreadRates {
                tid: 7,
                role,
                run,
                ready: 0.0,
                turns_per_s: 0.0,
                throttled: None,
            };
            let vm = VmRates {
                nics: vec![nic],
                threads: vec![thread],
                ..VmRates::default()
            };
            let texts = findings(
                "vm-tap-in-main-loop",
                &Evidence {
                    vm: Some(&vm),
                    ..Evidence::default()
                },
            );
            texts
                .into_iter()
                .map(|text| text.replace('\u{a0}', " "))
                .collect::<Vec<_>>()
        };
        assert_eq!(
            findings_for(Role::Main, 0.97, 41_000.0, false),
            [
                "QEMU's main loop (TID 7) is on a CPU 97 % of the time and moves 41000 packets a second of tap0: it alone serves all queues of a NIC without vhost-net."
            ]
        );
        let others = [
            findings_for(Role::Main, 0.7, 41_000.0, false),
            findings_for(Role::Main, 0.97, 900.0, false),
            findings_for(Role::Main, 0.97, 41_000.0, true),
            findings_for(Role::Vcpu(0), 0.97, 41_000.0, false),
        ];
        assert!(others.iter().all(Vec::is_empty), "{others:?}");
    }

    #[test]
    fn full_packets_alone_are_segments() {
        let findings_for = |tx_packets_per_s: f64, bytes: f64| {
            let tx_bytes_per_s = tx_packets_per_s * bytes;
            let nic = NicRates {
                tap: "tap0".to_owned(),
                tx_packets_per_s,
                tx_bytes_per_s,
                ..NicRates::default()
            };
            let vm = VmRates {
                nics: vec![nic],
                ..VmRates::default()
            };
            findings(
                "vm-small-segments",
                &Evidence {
                    vm: Some(&vm),
                    ..Evidence::default()
                },
            )
        };
        assert_eq!(
            findings_for(12_000.0, 1510.0),
            [
                "Each second 12000 packets from the guest pass tap0, of 1510 bytes on average: full packets at an MTU of 1,500 bytes, not merged."
            ]
        );
        // Offloaded, small ones, few.
        assert!(
            [
                findings_for(12_000.0, 9000.0),
                findings_for(12_000.0, 90.0),
                findings_for(900.0, 1510.0)
            ]
            .iter()
            .all(Vec::is_empty)
        );
    }
}
