//! `vmtax case`: published findings, put to the test here.

use super::carry_out::carry_out;
use super::{doctor, exec, print, selection};
use crate::cli::CaseArgs;
use crate::fault::Fault;
use std::process::ExitCode;
use vmtax_host::find_program;
use vmtax_studies::reproduce::Case;

pub fn case(args: &CaseArgs) -> Result<ExitCode, Fault> {
    let words: Vec<&str> = args.what.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["list"] => list(),
        ["show", name] => show(&find(name, args.real)?),
        ["run", name] | [name] if !matches!(*name, "run" | "show") => {
            let case = find(name, args.real)?;
            let host = doctor::facts(args.common.qemu.as_deref());
            let mut plan = case.plan_here(&host, args.quick);
            if !plan.machines.iter().any(|m| m.is_guest()) {
                return print(&format!(
                    "{}: not testable here: it takes a KVM that runs guest kernels at speed. `vmtax doctor` says what \
                     this host has.\n",
                    case.name
                ))
                .map(|()| ExitCode::SUCCESS);
            }
            if let Some(program) = case.needs.as_ref().filter(|program| find_program(program).is_none()) {
                let what = format!("{} needs {program}, which is not installed: apt-get install {program}", case.name);
                return Err(Fault::Usage(what));
            }
            if plan.command().is_some() {
                plan.variants = vec![exec::root_share(None)?];
            }
            selection::common(&mut plan, &args.common);
            selection::check(&plan)?;
            carry_out(&plan, host, &args.common.record, false)
        }
        _ => Err(Fault::Usage("write `vmtax case list`, `vmtax case show NAME` or `vmtax case NAME`".to_owned())),
    }
}

/// The form of a case by the program that was measured then is a case of its own.
fn find(name: &str, real: bool) -> Result<Case, Fault> {
    if !real {
        return Ok(vmtax_studies::reproduce::find(name)?);
    }
    vmtax_studies::reproduce::find(&format!("{name}-real"))
        .map_err(|_| Fault::Usage(format!("--real is of sysbench-five, not of '{}'", name.escape_default())))
}

fn list() -> Result<ExitCode, Fault> {
    for case in vmtax_studies::reproduce::all()? {
        print(&format!("{:20} {}\n{:20} takes {}\n", case.name, case.title, "", case.takes))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(case: &Case) -> Result<ExitCode, Fault> {
    print(&format!(
        "{}: {}\n{}\nPublished in {}.\nTakes {}.\n\nClaims:\n",
        case.name, case.title, case.claim, case.source, case.takes
    ))?;
    for test in &case.tests {
        print(&format!("- {} (published: {})\n", test.what, test.published))?;
    }
    print(&format!("\nThe plan:\n{}", case.plan.to_toml()?))?;
    Ok(ExitCode::SUCCESS)
}
