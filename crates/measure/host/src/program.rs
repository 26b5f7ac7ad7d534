use rustix::fs::{Access, access};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

/// Where system programs are that an ordinary user's PATH leaves out.
const BEYOND_PATH: [&str; 9] = [
    "/usr/local/bin",
    "/usr/bin",
    "/bin",
    "/usr/local/sbin",
    "/usr/sbin",
    "/sbin",
    "/usr/libexec",
    "/usr/lib/qemu",
    "/usr/local/libexec",
];

/// The first executable file of that name in PATH or in the system's folders for programs (`/usr/sbin`, `/usr/libexec`, …).
pub fn find_program(name: &str) -> Option<PathBuf> {
    folders()
        .into_iter()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file() && is_executable(path))
}

/// The folders of PATH and those beyond, each once.
pub(crate) fn folders() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    merged(&path)
}

/// An empty or relative entry of PATH means the current folder: not followed, it depends on where one stands.
fn merged(path: &OsStr) -> Vec<PathBuf> {
    let mut folders: Vec<PathBuf> = Vec::new();
    for folder in std::env::split_paths(path).chain(BEYOND_PATH.map(PathBuf::from)) {
        if folder.is_absolute() && !folders.contains(&folder) {
            folders.push(folder);
        }
    }
    folders
}

/// Returns true if this user may execute the file.
pub(crate) fn is_executable(path: &Path) -> bool {
    access(path, Access::EXEC_OK).is_ok()
}

/// Returns true if this user may write there.
pub(crate) fn is_writable(path: &Path) -> bool {
    access(path, Access::WRITE_OK).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_comes_first_and_each_folder_once() {
        let folders = merged(OsStr::new("/opt/q/bin::relative:/usr/bin:/opt/q/bin"));
        assert_eq!(
            folders[..2],
            [PathBuf::from("/opt/q/bin"), PathBuf::from("/usr/bin")]
        );
        assert_eq!(
            folders
                .iter()
                .filter(|f| f.as_os_str() == "/usr/bin")
                .count(),
            1
        );
        assert!(folders.contains(&PathBuf::from("/usr/sbin")));
        assert!(folders.iter().all(|f| f.is_absolute()));
    }

    #[test]
    fn finds_programs_and_only_those() {
        assert!(find_program("sh").is_some());
        assert_eq!(find_program("no-such-program-of-vmtax"), None);
    }
}
