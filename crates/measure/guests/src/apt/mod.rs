//! Distribution packages, fetched with the system's apt into the user's cache, without being installed.
//!
//! [`Apt`] asks and downloads, from the system's sources or from any suite of the distribution's [`Archive`]; a [`Fetch`]
//! is the time in which one process makes something out of it in the cache, in one step or not at all.

mod archive;
mod cache;
mod config;
pub mod version;

use crate::ResultExt;
use crate::apt::config::{Lists, SandboxFolder};
pub use crate::error::AptError;
pub use archive::{Archive, Distribution};
pub(crate) use archive::{Suite, check_suite, is_known, is_suite, known, with_version};
pub use cache::{Fetch, cache_dir};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// apt downloads to its current folder: this one, below the work folder.
const DOWNLOADS: &str = "downloads";

/// apt with its caches, and where wanted its lists, in a work folder.
#[derive(Debug)]
pub struct Apt {
    work: PathBuf,
    /// Folder that contains [`Apt::work`], where root's own cache is closed to the user that apt downloads as.
    _place: Option<SandboxFolder>,
}

impl Apt {
    /// Prepares `work`, an existing folder that apt may fill. The system's sources and lists count at first.
    ///
    /// # Errors
    /// When `work` cannot be written.
    pub fn new(work: &Path) -> Result<Apt, AptError> {
        let place = SandboxFolder::create()?;
        let work = place.as_ref().map_or(work, SandboxFolder::path);
        for folder in ["cache/archives/partial", "lists/partial", DOWNLOADS] {
            let folder = work.join(folder);
            fs::create_dir_all(&folder).writing(&folder)?;
        }
        if let Some(place) = &place {
            place.hand_over(&work.join(DOWNLOADS))?;
        }
        config::write(work, Lists::System)?;
        Ok(Apt {
            work: work.into(),
            _place: place,
        })
    }

    /// Fetches the package lists of the system's sources into the work folder and uses them from now on; apt checks
    /// their signatures. A source that fails is told in the answer, for one that has nothing to do with what
    /// is wanted is no reason to give up.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or when the work folder cannot be written.
    pub fn update(&self) -> Result<Option<AptError>, AptError> {
        config::write(&self.work, Lists::Own)?;
        self.refresh()
    }

    fn refresh(&self) -> Result<Option<AptError>, AptError> {
        match self.run("apt-get", &["-q", "update"]) {
            Ok(_) => Ok(None),
            Err(failed @ AptError::Failed { .. }) => Ok(Some(failed)),
            Err(other) => Err(other),
        }
    }

    /// The archive of the distribution that this system is of.
    ///
    /// # Errors
    /// [`AptError::NoArchive`] when its sources name none, [`AptError::NoApt`].
    pub fn archive(&self) -> Result<Archive, AptError> {
        // Without release information, sources count whose lists were never fetched.
        let options = [
            "indextargets",
            "--no-release-info",
            "--format",
            archive::FORMAT,
            "Created-By: Packages",
        ];
        Archive::among(&self.run("apt-get", &options)?)
    }

    /// From now on nothing but these suites of the archive, as if nothing were installed; fetches their lists, whose
    /// signatures apt checks. As with [`Apt::update`], a suite that fails is told in the answer.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or when the work folder cannot be written.
    pub fn look_in(
        &self,
        archive: &Archive,
        suites: &[&str],
    ) -> Result<Option<AptError>, AptError> {
        config::write(&self.work, Lists::Sources(&archive.sources(suites)))?;
        Ok(self
            .refresh()?
            .map(|failed| archive.explain(suites, failed)))
    }

    /// The versions of a package, each with its suite.
    ///
    /// # Errors
    /// [`AptError::Failed`].
    pub fn versions(&self, package: &str) -> Result<Vec<(String, String)>, AptError> {
        Ok(by_suite(&self.run("apt-cache", &["madison", package])?))
    }

    /// A package of `suite` and all that would be installed with it where nothing is: what it depends on, and what that
    /// depends on. To be asked after [`Apt::look_in`].
    ///
    /// # Errors
    /// [`AptError::Failed`] when the suite lacks something of it.
    pub fn with_dependencies(&self, package: &str, suite: &str) -> Result<Vec<Package>, AptError> {
        let simulate = [
            "-q",
            "install",
            "--simulate",
            "--target-release",
            suite,
            package,
        ];
        let said = self.run("apt-get", &simulate)?;
        let installed = installed(&said).into_iter();
        let exact: Vec<String> = installed
            .map(|(name, version)| format!("{name}={version}"))
            .collect();
        let mut packages = shown(&self.run("apt-cache", &with_words(&["show"], &exact))?);
        packages.dedup_by(|a, b| a.name == b.name);
        Ok(packages)
    }

    /// Names of all packages that begin like this, also of installed ones that no source has any more.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] with what was said.
    pub fn names(&self, beginning: &str) -> Result<Vec<String>, AptError> {
        let said = self.run("apt-cache", &["pkgnames", beginning])?;
        Ok(said.lines().map(Into::into).collect())
    }

    /// Returns the names of the packages that a package depends on; empty when there is no such package.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] with the output of apt.
    pub fn depends(&self, package: &str) -> Result<Vec<String>, AptError> {
        match self.run("apt-cache", &["depends", package]) {
            Ok(said) => {
                let names = said.lines().filter_map(|line| line.split_once("Depends: "));
                // One that no list has stands in angle brackets.
                Ok(names
                    .map(|(_, name)| name.trim_matches(['<', '>']).into())
                    .collect())
            }
            Err(AptError::Failed { .. }) => Ok(Vec::new()),
            Err(other) => Err(other),
        }
    }

    /// Returns the names of the packages that one version of a package depends on, all alternatives.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] when there is no such version.
    pub fn depends_of(&self, package: &str, version: &str) -> Result<Vec<String>, AptError> {
        let shown = shown(&self.run("apt-cache", &["show", &format!("{package}={version}")])?);
        Ok(shown
            .into_iter()
            .flat_map(|package| package.depends)
            .collect())
    }

    /// Length of a package's file, bytes; `None` when there is none to download.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] with what was said.
    pub fn size(&self, package: &str) -> Result<Option<u64>, AptError> {
        // apt takes a name that it does not know for a pattern, and `show` and `download` then mean all that match.
        if !self.names(package)?.iter().any(|name| name == package) {
            return Ok(None);
        }
        let said = self.run("apt-cache", &["show", "--no-all-versions", package])?;
        let mut lines = said.lines();
        Ok(lines.find_map(|line| line.strip_prefix("Size: ")?.parse().ok()))
    }

    /// Downloads packages, each `NAME` or `NAME=VERSION`, and checks them against the lists; gives their files.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] with what was said.
    pub fn download(&self, packages: &[String]) -> Result<Vec<PathBuf>, AptError> {
        self.run("apt-get", &with_words(&["-q", "download"], packages))?;
        self.downloaded("deb")
    }

    /// The files that end so.
    fn downloaded(&self, end: &str) -> Result<Vec<PathBuf>, AptError> {
        let folder = self.work.join(DOWNLOADS);
        let entries = fs::read_dir(&folder).reading(&folder)?;
        let files = entries.flatten().map(|entry| entry.path());
        Ok(files
            .filter(|path| path.extension().is_some_and(|found| found == end))
            .collect())
    }

    /// Downloads a package's source from a suite, whose signature apt checks, and unpacks it as the folder `into`; gives its
    /// version.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] with what was said.
    pub fn source(
        &self,
        archive: &Archive,
        suite: &str,
        package: &str,
        into: &Path,
    ) -> Result<String, AptError> {
        config::write(&self.work, Lists::Sources(&archive.source_of(suite)))?;
        if let Some(failed) = self.refresh()? {
            return Err(archive.explain(&[suite], failed));
        }
        self.run(
            "apt-get",
            &["-q", "source", "--download-only", "--only-source", package],
        )?;
        let control = self.downloaded("dsc")?.pop().unwrap_or_default();
        let text = fs::read_to_string(&control).reading(&control)?;
        self.extract("dpkg-source", &control, into)?;
        let version = text.lines().find_map(|line| line.strip_prefix("Version: "));
        Ok(version.unwrap_or_default().to_owned())
    }

    /// Unpacks a package's files into a folder; runs none of its scripts.
    ///
    /// # Errors
    /// [`AptError::NoApt`], or [`AptError::Failed`] with what was said.
    pub fn unpack(&self, package: &Path, into: &Path) -> Result<(), AptError> {
        self.extract("dpkg-deb", package, into)
    }

    fn extract(&self, program: &str, from: &Path, into: &Path) -> Result<(), AptError> {
        let (from, into) = (from.to_string_lossy(), into.to_string_lossy());
        self.run(program, &["--extract", &from, &into]).map(drop)
    }

    fn run(&self, program: &str, arguments: &[&str]) -> Result<String, AptError> {
        let output = Command::new(program)
            .args(arguments)
            .current_dir(self.work.join(DOWNLOADS))
            .env("APT_CONFIG", self.work.join("apt.env"))
            .env("LC_ALL", "C")
            .stdin(Stdio::null())
            .output();
        let output = match output {
            Ok(output) => output,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {
                return Err(AptError::NoApt {
                    program: program.into(),
                });
            }
            Err(e) => Err(e).reading(program)?,
        };
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(AptError::Failed {
            command: format!("{program} {}", arguments.join(" ")),
            said: end_of(&String::from_utf8_lossy(
                &[output.stdout, output.stderr].concat(),
            )),
        })
    }
}

/// The arguments of a command, with further ones behind them.
fn with_words<'a>(arguments: &[&'a str], further: &'a [String]) -> Vec<&'a str> {
    let further = further.iter().map(String::as_str);
    arguments.iter().copied().chain(further).collect()
}

/// The suites of this system's distribution that are known, with the version that `released` gives of each.
///
/// # Errors
/// When there is no apt, or its sources name no archive of a distribution.
pub(crate) fn released_versions(
    released: fn(&Suite) -> Option<&'static str>,
) -> Result<Vec<(&'static str, Option<&'static str>)>, AptError> {
    let work = tempfile::tempdir().writing(std::env::temp_dir())?;
    let archive = Apt::new(work.path())?.archive()?;
    let suites = known(archive.distribution).iter();
    Ok(suites.map(|suite| (suite.name, released(suite))).collect())
}

/// The last lines, which hold the reason; above them stand progress and sources that worked.
fn end_of(said: &str) -> String {
    const LINES: usize = 12;
    let lines: Vec<&str> = said
        .lines()
        .map(str::trim_end)
        .filter(|line| !line.is_empty())
        .collect();
    lines[lines.len().saturating_sub(LINES)..].join("\n")
}

/// A package's file in an archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Package {
    /// Name of the package.
    pub name: String,
    /// Version of the package, as apt takes it.
    pub version: String,
    /// A library, by the archive's section or, as some are filed elsewhere, by its name.
    pub is_library: bool,
    /// Names of packages that it depends on itself, all alternatives.
    pub depends: Vec<String>,
    /// Length of its file, bytes.
    pub size: u64,
}

/// The packages that `apt-get install --simulate` would install: names and versions.
pub(crate) fn installed(said: &str) -> Vec<(String, String)> {
    let lines = said.lines().filter_map(|line| line.strip_prefix("Inst "));
    let read = |line: &str| {
        let (name, rest) = line.split_once(' ')?;
        let version = rest.strip_prefix('(')?.split_whitespace().next()?;
        Some((name.to_owned(), version.to_owned()))
    };
    lines.filter_map(read).collect()
}

/// The packages that `apt-cache show` describes, a paragraph each.
pub(crate) fn shown(said: &str) -> Vec<Package> {
    let read = |paragraph: &str| {
        let field = |name: &str| {
            paragraph
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
        };
        let name = field("Package")?;
        let section = field("Section").unwrap_or_default();
        Some(Package {
            name: name.into(),
            version: field("Version")?.into(),
            is_library: section.rsplit('/').next() == Some("libs") || name.starts_with("lib"),
            depends: names(field("Depends").unwrap_or_default()),
            size: field("Size")?.parse().ok()?,
        })
    };
    said.split("\n\n").filter_map(read).collect()
}

/// Names from a list such as `seabios (>= 1.12), libaio1 | libaio1t64:any`.
fn names(list: &str) -> Vec<String> {
    let words = list
        .split([',', '|'])
        .filter_map(|one| one.split_whitespace().next());
    words
        .map(|word| word.split(':').next().unwrap_or(word).to_owned())
        .collect()
}

/// Versions of one package by suite, from `apt-cache madison`.
pub(crate) fn by_suite(said: &str) -> Vec<(String, String)> {
    let read = |line: &str| {
        let mut columns = line.split('|').map(str::trim);
        let (_, version, source) = (columns.next()?, columns.next()?, columns.next()?);
        let suite = source.split_whitespace().nth(1)?.split('/').next()?;
        Some((suite.to_owned(), version.to_owned()))
    };
    said.lines()
        .filter(|line| line.ends_with("Packages"))
        .filter_map(read)
        .collect()
}

#[cfg(test)]
#[allow(clippy::disallowed_methods)]
mod tests {
    use super::*;
    use rustix::process::geteuid;
    use std::io::{Read, Write};
    use std::net::{Ipv4Addr, TcpListener};

    /// Not a package, with its hash: apt does not open what it downloads.
    const CONTENT: &str = "no package";
    const HASH: &str = "a5e36d154d6ea17046a6b246a386a77096a56a9f0586a51e4abc4ad0fe0bbd43";

    /// The user of the process at the other end of a connection to this host.
    fn user_of(port: u16) -> Option<u32> {
        let sockets = fs::read_to_string("/proc/net/tcp").unwrap();
        let local = format!("0100007F:{port:04X}");
        let line = sockets
            .lines()
            .find(|line| line.split_whitespace().nth(1) == Some(&local))?;
        line.split_whitespace().nth(7)?.parse().ok()
    }

    /// Serves the index and the package until a client asks for `/end`; gives each request's path and the user who sent it.
    fn serve(listener: &TcpListener, index: &str) -> Vec<(String, Option<u32>)> {
        let mut users = Vec::new();
        for connection in listener.incoming() {
            let mut connection = connection.unwrap();
            let user = user_of(connection.peer_addr().unwrap().port());
            let mut request = [0; 4096];
            // One request after another, until the client closes.
            while let Ok(read @ 1..) = connection.read(&mut request) {
                let request = String::from_utf8_lossy(&request[..read]).into_owned();
                let path = request
                    .split_whitespace()
                    .nth(1)
                    .unwrap_or_default()
                    .to_owned();
                users.push((path.clone(), user));
                let body = match path.as_str() {
                    "/./Packages" => Some(index),
                    "/./package.deb" => Some(CONTENT),
                    _ => None,
                };
                let status = if body.is_some() {
                    "200 OK"
                } else {
                    "404 Not Found"
                };
                let body = body.unwrap_or_default();
                let answer = format!(
                    "HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n{body}",
                    body.len()
                );
                if connection.write_all(answer.as_bytes()).is_err() || path == "/end" {
                    break;
                }
            }
            if users.last().is_some_and(|(path, _)| path == "/end") {
                return users;
            }
        }
        users
    }

    /// As root it is apt's own user who connects, for lists as for packages, so that only that user's rights are in reach of a
    /// hostile mirror.
    #[test]
    fn what_downloads_is_not_root() {
        let Ok(Some(expected)) = crate::apt::config::user()
            .map(|user| user.or((!geteuid().is_root()).then(|| geteuid().as_raw())))
        else {
            return;
        };
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let index = format!(
            "Package: vmtax-test\nVersion: 1\nArchitecture: all\nMaintainer: none\nFilename: ./package.deb\nSize: {}\n\
             SHA256: {HASH}\nDescription: none\n\n",
            CONTENT.len()
        );
        let server = std::thread::spawn(move || serve(&listener, &index));
        let work = tempfile::tempdir().unwrap();
        let apt = Apt::new(work.path()).unwrap();
        config::write(
            &apt.work,
            Lists::Sources(&format!("deb [trusted=yes] http://127.0.0.1:{port}/ ./\n")),
        )
        .unwrap();
        let refreshed = apt.refresh();
        let downloaded = apt.download(&["vmtax-test".to_owned()]);
        let mut end = std::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        end.write_all(b"GET /end HTTP/1.1\r\n\r\n").unwrap();
        let mut users = server.join().unwrap();
        users.pop();
        assert!(
            refreshed.as_ref().is_ok_and(Option::is_none),
            "{refreshed:?} {users:?}"
        );
        let files = downloaded.unwrap();
        assert_eq!(
            files
                .iter()
                .map(|file| fs::read_to_string(file).unwrap())
                .collect::<Vec<_>>(),
            [CONTENT]
        );
        assert!(
            users.iter().any(|(path, _)| path.ends_with("package.deb")),
            "{users:?}"
        );
        assert!(
            users.iter().all(|(_, user)| *user == Some(expected)),
            "{expected}: {users:?}"
        );
    }

    use proptest::prelude::*;

    #[test]
    fn apts_own_words_are_read() {
        let said = "Reading package lists...\n\
                    Inst zlib1g (1:1.2.11.dfsg-2+deb11u2 Debian:11.11/oldoldstable [amd64])\n\
                    Inst dpkg (1.20.13 Debian:11.11/oldoldstable [amd64]) []\n\
                    Conf zlib1g (1:1.2.11.dfsg-2+deb11u2 Debian:11.11/oldoldstable [amd64])\n";
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(
            installed(said),
            [
                pair("zlib1g", "1:1.2.11.dfsg-2+deb11u2"),
                pair("dpkg", "1.20.13")
            ]
        );

        let said = "Package: zlib1g\nVersion: 1\nSection: libs\nDepends: libc6 (>= 2.14), a:any | b\nSize: 91\nDescription: a\n\n\
                    Package: libndctl6\nSection: admin\nVersion: 2\nSize: 92\n\n\
                    Package: passwd\nSection: admin\nVersion: 3\nSize: 93\n\nPackage: gone\nVersion: 4\n";
        let read = shown(said);
        let facts: Vec<(&str, bool, u64)> = read
            .iter()
            .map(|p| (p.name.as_str(), p.is_library, p.size))
            .collect();
        assert_eq!(
            facts,
            [
                ("zlib1g", true, 91),
                ("libndctl6", true, 92),
                ("passwd", false, 93)
            ]
        );
        assert_eq!(read[0].depends, ["libc6", "a", "b"]);

        let said = "qemu-system-x86 | 1:10.0.2+ds-2 | http://mirror/debian bookworm-backports/main amd64 Packages\n\
                    qemu-system-x86 | 1:7.2+dfsg-7 | http://mirror/debian bookworm/main amd64 Packages\n\
                    qemu | 1:7.2+dfsg-7 | http://mirror/debian bookworm/main Sources\n";
        assert_eq!(
            by_suite(said),
            [
                pair("bookworm-backports", "1:10.0.2+ds-2"),
                pair("bookworm", "1:7.2+dfsg-7")
            ]
        );
    }

    proptest! {
        #[test]
        fn anything_else_is_passed_over(said in "(Inst |Package: |[a-z(| \n]){0,40}") {
            for (name, version) in installed(&said) {
                prop_assert!(!name.contains('\n') && !version.is_empty());
            }
            let _ = (shown(&said), by_suite(&said));
        }
    }
}
