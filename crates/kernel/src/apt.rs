//! The system's apt, used without touching the system: its sources and keyrings, but our own folders.

use crate::error::KernelError;
use std::env;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Which package lists apt reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lists {
    /// Those of the last `apt-get update` of the system.
    System,
    /// Our own, fetched by [`Apt::update`]. Root's lists are left alone too: fetching a kernel changes nothing else.
    Own,
}

/// apt with its caches, and where wanted its lists, in a work folder.
pub(crate) struct Apt {
    work: PathBuf,
}

impl Apt {
    /// Prepares `work`, an existing folder that apt may fill.
    pub(crate) fn new(work: &Path) -> Result<Apt, KernelError> {
        let apt = Apt { work: work.into() };
        for folder in ["cache/archives/partial", "lists/partial"] {
            let folder = work.join(folder);
            fs::create_dir_all(&folder).map_err(KernelError::write(&folder))?;
        }
        apt.configure(Lists::System)?;
        Ok(apt)
    }

    /// Fetches the package lists of the system's sources into the work folder and uses them from now on; apt checks
    /// their signatures. A source that fails is told in the answer, for one that has nothing to do with kernels is no
    /// reason to give up.
    pub(crate) fn update(&self) -> Result<Option<KernelError>, KernelError> {
        self.configure(Lists::Own)?;
        match self.run("apt-get", &["-q", "update"]) {
            Ok(_) => Ok(None),
            Err(failed @ KernelError::Apt { .. }) => Ok(Some(failed)),
            Err(other) => Err(other),
        }
    }

    /// Names of all packages that begin like this, also of installed ones that no source has any more.
    pub(crate) fn names(&self, beginning: &str) -> Result<Vec<String>, KernelError> {
        Ok(self.run("apt-cache", &["pkgnames", beginning])?.lines().map(Into::into).collect())
    }

    /// What a package depends on; nothing when there is no such package.
    pub(crate) fn depends(&self, package: &str) -> Result<Vec<String>, KernelError> {
        match self.run("apt-cache", &["depends", package]) {
            Ok(said) => {
                Ok(said.lines().filter_map(|line| line.split_once("Depends: ")).map(|(_, to)| to.into()).collect())
            }
            Err(KernelError::Apt { .. }) => Ok(Vec::new()),
            Err(other) => Err(other),
        }
    }

    /// Length of a package's file, bytes; `None` when there is none to download.
    pub(crate) fn size(&self, package: &str) -> Result<Option<u64>, KernelError> {
        // apt takes a name that it does not know for a pattern, and `show` and `download` then mean all that match.
        if !self.names(package)?.iter().any(|name| name == package) {
            return Ok(None);
        }
        let said = self.run("apt-cache", &["show", "--no-all-versions", package])?;
        Ok(said.lines().find_map(|line| line.strip_prefix("Size: ")?.parse().ok()))
    }

    /// Downloads packages; gives their files.
    pub(crate) fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>, KernelError> {
        let arguments: Vec<&str> = ["-q", "download"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.run("apt-get", &arguments)?;
        let entries = fs::read_dir(&self.work).map_err(KernelError::read(&self.work))?;
        let files = entries.flatten().map(|entry| entry.path());
        Ok(files.filter(|path| path.extension().is_some_and(|end| end == "deb")).collect())
    }

    /// Unpacks a package's files into a folder; runs none of its scripts.
    pub(crate) fn unpack(&self, package: &Path, into: &Path) -> Result<(), KernelError> {
        self.run("dpkg-deb", &["--extract", &package.to_string_lossy(), &into.to_string_lossy()]).map(drop)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, KernelError> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(&self.work)
            .env("APT_CONFIG", self.work.join("apt.env"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Ok(output) => output,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(KernelError::NoApt { program: program.into() });
            }
            Err(e) => return Err(KernelError::read(Path::new(program))(e)),
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(KernelError::Apt {
            command: format!("{program} {}", arguments.join(" ")),
            said: end_of(&String::from_utf8_lossy(&[output.stdout, output.stderr].concat())),
        })
    }

    /// Writes the two configuration files. apt reads `$APT_CONFIG` first and `Dir::Etc::main` last, so only the latter
    /// can drop what the system's `apt.conf.d` adds: hooks that run after an update, lists that nobody here reads. The
    /// rest of the system's configuration (proxies, credentials, sources, keyrings) stays.
    fn configure(&self, lists: Lists) -> Result<(), KernelError> {
        let work = self.work.display();
        let main = format!(
            "{}\
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
             Acquire::Languages \"none\";\n\
             Acquire::Retries \"2\";\n\
             Acquire::http::Timeout \"30\";\n\
             Acquire::https::Timeout \"30\";\n\
             APT::Sandbox::User \"root\";\n\
             Dir::Cache \"{work}/cache\";\n{}",
            if Path::new(SYSTEM_MAIN).is_file() { format!("#include \"{SYSTEM_MAIN}\";\n") } else { String::new() },
            match lists {
                Lists::System => String::new(),
                Lists::Own => format!("Dir::State::lists \"{work}/lists\";\n"),
            },
        );
        let before = env::var("APT_CONFIG").map(|path| format!("#include \"{path}\";\n")).unwrap_or_default();
        let first = format!("{before}Dir::Etc::main \"{work}/apt.main\";\n");
        for (name, text) in [("apt.main", main), ("apt.env", first)] {
            let path = self.work.join(name);
            fs::write(&path, text).map_err(KernelError::write(&path))?;
        }
        Ok(())
    }
}

/// The system's own main configuration file, in whose place ours is read.
const SYSTEM_MAIN: &str = "/etc/apt/apt.conf";

/// The last lines, which hold the reason; above them stand progress and sources that worked.
fn end_of(said: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = said.lines().map(str::trim_end).filter(|line| !line.is_empty()).collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}
