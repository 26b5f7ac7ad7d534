use super::*;
use proptest::prelude::*;

fn uri(targets: &str) -> Option<String> {
    Archive::among(targets).ok().map(|archive| archive.uri)
}

#[test]
fn the_distributions_own_archive_is_found() {
    let debian = "https://else/apt cloud-sdk-bookworm main\nhttps://else/node nodistro main\n\
                  https://else/made-for bookworm main\n\
                  http://mirror/debian-security/ bookworm-security main\n\
                  http://mirror/debian/ bookworm main\nhttp://mirror/debian/ bookworm main\n\
                  http://mirror/debian/ bookworm-updates main\n";
    let found = Archive::among(debian).unwrap();
    assert_eq!(
        (found.uri.as_str(), found.distribution),
        ("http://mirror/debian/", Distribution::Debian)
    );

    let ubuntu = "http://security/ubuntu/ noble-security main\nhttp://mirror/ubuntu/ noble universe\n\
                  http://mirror/ubuntu/ noble main\n";
    let found = Archive::among(ubuntu).unwrap();
    assert_eq!(
        (found.uri.as_str(), found.distribution),
        ("http://mirror/ubuntu/", Distribution::Ubuntu)
    );
}

#[test]
fn the_first_of_equals_counts() {
    assert_eq!(
        uri("http://a/ sid main\nhttp://b/ sid main\n").unwrap(),
        "http://a/"
    );
}

#[test]
fn without_a_distributions_archive_there_is_none() {
    for targets in [
        "",
        "http://else/ nodistro main\n",
        "http://mirror/ bookworm contrib\n",
        "copy:/x ./ \n",
        "a b\n",
    ] {
        assert!(
            matches!(Archive::among(targets), Err(AptError::NoArchive)),
            "{targets}"
        );
    }
}

#[test]
fn a_suite_comes_with_what_it_builds_upon() {
    let keyring = Some(PathBuf::from("/k.gpg"));
    let archive = Archive {
        uri: "http://mirror/".into(),
        distribution: Distribution::Debian,
        keyring,
    };
    assert_eq!(
        archive.sources(&["bookworm-backports"]),
        "deb [arch=amd64 signed-by=/k.gpg] http://mirror/ bookworm main\n\
         deb [arch=amd64 signed-by=/k.gpg] http://mirror/ bookworm-backports main\n"
    );
    assert_eq!(archive.sources(&["trixie"]).lines().count(), 1);
}

#[test]
fn what_apt_said_is_told_as_what_it_means() {
    let archive = Archive {
        uri: "http://mirror/".into(),
        distribution: Distribution::Debian,
        keyring: None,
    };
    let explained = |said: &str| {
        let failed = AptError::Failed {
            command: "apt-get update".into(),
            said: said.into(),
        };
        archive.explain(&["trixie", "nosuch"], failed).to_string()
    };
    let none = explained(
        "E: The repository 'http://mirror/ nosuch Release' does not have a Release file.",
    );
    assert!(
        none.contains("http://mirror/ has no suite nosuch"),
        "{none}"
    );
    let key = explained(
        "W: GPG error: http://mirror/ trixie InRelease: not available: NO_PUBKEY 6ED0\nE: not signed.",
    );
    assert!(
        key.contains("trixie is signed") && key.contains("debian-archive-keyring"),
        "{key}"
    );
    assert!(explained("E: Could not resolve 'mirror'").contains("Check the network"));
}

proptest! {
    #[test]
    fn any_list_of_sources_is_read(
        lines in proptest::collection::vec(("[a-z:/.]{0,9}", "(bookworm|noble|sid|[a-z-]{0,8})", "(main|universe)?"), 0..12)
    ) {
        let targets: String = lines.iter().map(|(a, b, c)| format!("{a} {b} {c}\n")).collect();
        if let Some(uri) = uri(&targets) {
            let is_there = lines.iter().any(|(a, b, c)| *a == uri && c == "main" && base(b) == b);
            prop_assert!(is_there, "{}", uri);
        }
    }
}
