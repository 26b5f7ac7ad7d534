//! The configuration under which apt works in a folder of ours.

use crate::error::AptError;
use crate::{ResultExt, entries};
use rustix::fs::{FlockOperation, flock};
use rustix::process::geteuid;
use std::env;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use tempfile::TempDir;

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

/// Hooks and lists of the system that are not wanted here, and settings of our own.
const SETTINGS: &str = "\
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
#clear Acquire::IndexTargets::deb::DEP-11;
#clear Acquire::IndexTargets::deb::DEP-11-icons-small;
#clear Acquire::IndexTargets::deb::DEP-11-icons;
#clear Acquire::IndexTargets::deb::DEP-11-icons-hidpi;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large;
#clear Acquire::IndexTargets::deb::DEP-11-icons-large-hidpi;
#clear Acquire::IndexTargets::deb::Contents-deb;
#clear Acquire::IndexTargets::deb::CNF;
APT::Update::Error-Mode \"any\";
APT::Install-Recommends \"false\";
Acquire::Languages \"none\";
Acquire::Retries \"2\";
Acquire::http::Timeout \"30\";
Acquire::https::Timeout \"30\";
";

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
    let main = format!("{system}{SETTINGS}Dir::Cache \"{folder}/cache\";\n{lists}");
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

/// On a disk, unlike `/tmp`, and as open.
const PARENT: &str = "/var/tmp";
const NAME: &str = "vmtax-apt-";
/// `APT::Sandbox::User`, as distributions have it.
const USER: &str = "_apt";

/// A folder that apt's user can pass, and nobody but root can list: apt's methods run as a user of apt's own, to whom root's cache is
/// closed.
#[derive(Debug)]
pub(super) struct SandboxFolder {
    folder: TempDir,
    user: u32,
    /// Held as long as it is in use; the kernel gives it back however its holder ends.
    _lock: File,
}

impl SandboxFolder {
    /// `None` where apt changes no user: where this is not root, or there is no such user. Removes what killed fetches left.
    pub fn create() -> Result<Option<SandboxFolder>, AptError> {
        let Some(user) = user()? else { return Ok(None) };
        sweep();
        let folder = tempfile::Builder::new()
            .prefix(NAME)
            .tempdir_in(PARENT)
            .writing(PARENT)?;
        let lock = File::open(folder.path()).reading(folder.path())?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).writing(folder.path())?;
        fs::set_permissions(folder.path(), Permissions::from_mode(0o711)).writing(folder.path())?;
        Ok(Some(SandboxFolder {
            folder,
            user,
            _lock: lock,
        }))
    }

    pub fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Gives apt's user a folder to write to.
    pub fn hand_over(&self, folder: &Path) -> Result<(), AptError> {
        Ok(chown(folder, Some(self.user), None).writing(folder)?)
    }
}

/// The number of apt's user, if this is root.
pub(super) fn user() -> Result<Option<u32>, AptError> {
    if !geteuid().is_root() {
        return Ok(None);
    }
    let users = fs::read_to_string("/etc/passwd").reading("/etc/passwd")?;
    let mut fields = users.lines().map(|line| line.split(':'));
    Ok(fields.find_map(|mut line| (line.next()? == USER).then(|| line.nth(1)?.parse().ok())?))
}

/// Removes root's folders that no process holds.
fn sweep() {
    for entry in entries(Path::new(PARENT))
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(NAME))
    {
        let path = entry.path();
        let is_own = path
            .symlink_metadata()
            .is_ok_and(|about| about.is_dir() && about.uid() == 0);
        let is_free = || {
            File::open(&path).is_ok_and(|folder| {
                flock(&folder, FlockOperation::NonBlockingLockExclusive).is_ok()
            })
        };
        if is_own && is_free() {
            let _ = fs::remove_dir_all(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[ignore = "needs root"]
    fn what_a_killed_fetch_left_goes_and_what_is_in_use_stays() {
        let Some(used) = SandboxFolder::create().unwrap() else {
            return;
        };
        let left = tempfile::Builder::new()
            .prefix(NAME)
            .tempdir_in(PARENT)
            .unwrap()
            .keep();
        fs::write(left.join("package"), "").unwrap();
        let other = SandboxFolder::create().unwrap().unwrap();
        assert!(!left.exists() && used.path().exists() && other.path().exists());
        assert_eq!(used.path().metadata().unwrap().mode() & 0o777, 0o711);
    }
}
