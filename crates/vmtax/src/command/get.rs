use super::print;
use crate::cli::{GetArgs, GetWhat};
use crate::fault::Fault;
use std::fmt::Write;
use std::process::ExitCode;

pub fn get(args: &GetArgs) -> Result<ExitCode, Fault> {
    let cache = vmtax_kernel::cache_dir()?;
    match &args.what {
        Some(GetWhat::Kernel { version }) => {
            let kernel = vmtax_kernel::fetch(version.as_deref(), &cache, &mut |line| eprintln!("{line}"))?;
            print(&format!("{}  {}\n", kernel.release, kernel.image.display()))?;
        }
        None => print(&listing(&cache)?)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn listing(cache: &std::path::Path) -> Result<String, Fault> {
    let mut text = String::from("Guest kernels here:\n");
    let found = vmtax_kernel::find(cache);
    for kernel in &found.kernels {
        let _ = writeln!(text, "  {}  {}", kernel.release, kernel.image.display());
    }
    for (path, reason) in &found.unusable {
        let _ = writeln!(text, "  unusable: {}: {reason}", path.display());
    }
    if found.kernels.is_empty() {
        text.push_str("  none\n");
    }
    text.push_str("To be had with `vmtax get kernel VERSION`:\n");
    match vmtax_kernel::list_fetchable() {
        Ok(releases) => releases.iter().for_each(|release| {
            let _ = writeln!(text, "  {release}");
        }),
        Err(e) => {
            let _ = writeln!(text, "  unknown: {e}");
        }
    }
    Ok(text)
}
