//! The configuration under which apt works in a folder of ours.

use crate::ResultExt;
use crate::apt::error::AptError;
use std::path::Path;
use std::{env, fs};

/// Sources and package lists that apt reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lists<'a> {
    /// The system's sources, and the lists of its last `apt-get update`.
    System,
    /// The system's sources, and lists of our own. Root's lists are left alone too: fetching changes nothing else.
    Own,
    /// These lines for sources, lists of our own, and nothing installed: what a package needs is then all that it needs.
    Sources(&'a str),
}

/// The system's own main configuration file, in whose place ours is read.
const SYSTEM_MAIN: &str = "/etc/apt/apt.conf";

/// Writes `apt.env`, for `$APT_CONFIG`, and what belongs to it into `work`.
///
/// apt reads `$APT_CONFIG` first and `Dir::Etc::main` last, so only the latter can drop what the system's `apt.conf.d`
/// adds: hooks that run after an update, lists that nobody here reads. The rest of the system's configuration (proxies,
/// credentials, keyrings) stays.
pub(crate) fn write(work: &Path, lists: Lists<'_>) -> Result<(), AptError> {
    let folder = work.display();
    let own_lists = format!("Dir::State::lists \"{folder}/lists\";\n");
    let lists = match lists {
        Lists::System => String::new(),
        Lists::Own => own_lists,
        Lists::Sources(lines) => {
            let path = work.join("sources.list");
            fs::write(&path, lines).writing(&path)?;
            format!(
                "{own_lists}\
                 Dir::Etc::sourcelist \"{folder}/sources.list\";\n\
                 Dir::Etc::sourceparts \"/dev/null\";\n\
                 Dir::Etc::preferences \"/dev/null\";\n\
                 Dir::Etc::preferencesparts \"/dev/null\";\n\
                 Dir::State::status \"/dev/null\";\n\
                 Dir::State::extended_states \"{folder}/extended_states\";\n\
                 APT::Architecture \"amd64\";\n\
                 #clear APT::Architectures;\n\
                 #clear APT::Default-Release;\n"
            )
        }
    };
    let system = if Path::new(SYSTEM_MAIN).is_file() {
        format!("#include \"{SYSTEM_MAIN}\";\n")
    } else {
        String::new()
    };
    let main = format!(
        "{system}\
         #clear APT::Update::Pre-Invoke;\n\
         #clear APT::Update::Post-Invoke;\n\
         #clear APT::Update::Post-Invoke-Success;\n\
         #clear Acquire::IndexTargets::deb::DEP-11;\n\
         #clear Acquire::IndexTargets::deb::DEP-11-icons-small;\n\
         #clear Acquire::IndexTargets::deb::DEP-11-icons;\n\
         #clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;\n\
         #clear Acquire::IndexTargets::deb::DEP-11-icons-large;\n\
         #clear Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi;\n\
         #clear Acquire::IndexTargets::deb::Contents-deb;\n\
         #clear Acquire::IndexTargets::deb::CNF;\n\
         APT::Update::Error-Mode \"any\";\n\
         APT::Install-Recommends \"false\";\n\
         Acquire::Languages \"none\";\n\
         Acquire::Retries \"2\";\n\
         Acquire::http::Timeout \"30\";\n\
         Acquire::https::Timeout \"30\";\n\
         Dir::Cache \"{folder}/cache\";\n{lists}"
    );
    let before = env::var("APT_CONFIG")
        .map(|path| format!("#include \"{path}\";\n"))
        .unwrap_or_default();
    let first = format!("{before}Dir::Etc::main \"{folder}/apt.main\";\n");
    for (name, text) in [("apt.main", main), ("apt.env", first)] {
        let path = work.join(name);
        fs::write(&path, text).writing(&path)?;
    }
    Ok(())
}
