//! Packages as apt describes them.

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
mod tests {
    use super::*;
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
