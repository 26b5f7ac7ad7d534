//! What the figures were measured on and by: checks, kernels, QEMUs, the plan, the commands.

use crate::doctor::marker;
use crate::view;
use maud::{Markup, html as markup};
use vmtax_model::{Check, KernelIdentity, Machine, shell_line};
use vmtax_recording::Recording;

/// `kernels`: what each machine ran.
pub fn facts(recording: &Recording, kernels: &[(Machine, KernelIdentity)]) -> Markup {
    let host = &recording.host;
    let cpu = &host.cpu;
    markup! {
        section {
            h2 { "The machine underneath" }
            dl {
                dt { "Processor" } dd { (cpu.model) ", " (cpu.online) " online, " (cpu.threads_per_core) " per core" @if let Some(g) = &cpu.governor { ", governor " (g) } }
                dt { "Virtualisation" } dd { (cpu.virtualisation.as_deref().unwrap_or("none")) @if let Some(h) = &cpu.hypervisor { ", itself a guest of " (h) } }
                dt { "Clock" } dd { (cpu.clocksource) ", TSC " @if cpu.invariant_tsc { "invariant" } @else { "not invariant" } }
                dt { "Memory" } dd { (host.memory_mib) " MiB" }
                dt { "System" } dd { (host.distribution) ", Linux " (host.kernel) }
                @for q in &host.qemu { dt { "QEMU" } dd { (q.version) " " code { (q.path.to_string_lossy()) } } }
                @for (machine, k) in kernels { dt { "Kernel of " (machine) } dd { (k.system) " " (k.release) br; small { (k.version) } } }
            }
            (checks(&host.checks))
        }
        section {
            h2 { "How it was made" }
            p { "Recorded with" } pre { (shell_line(&recording.manifest.command)) }
            p { "This page again, from the recording alone" } pre { (view::report_command(recording)) }
            @if let Ok(plan) = recording.plan.to_toml() {
                details { summary { "The plan, which " code { "vmtax run" } " takes" } pre { (plan) } }
            }
        }
    }
}

fn checks(checks: &[Check]) -> Markup {
    markup! {
        p.intro { "Checks of the host when the recording was made. " span.source { code { "vmtax doctor" } } }
        div.scroll tabindex="0" role="region" aria-label="Checks of the host" {
            table.checks {
                caption.hidden { "Checks of the host" }
                thead { tr { @for name in ["state", "subject", "found", "why it matters, what mends it"] { th scope="col" { (name) } } } }
                tbody {
                    @for c in checks {
                        tr {
                            td { span.state.(marker(c.state)) { (marker(c.state)) } }
                            th scope="row" { (c.subject) }
                            td { (c.found) }
                            td { (c.why) @if let Some(m) = &c.mend { br; code { (m) } } }
                        }
                    }
                }
            }
        }
    }
}
