use vmtax_model::{Check, Readiness};

/// What mends a kernel that was built without something.
pub const OTHER_KERNEL: &str =
    "boot a distribution's kernel: sudo apt-get install linux-image-amd64 # Ubuntu: linux-image-generic";

/// What was found out about one thing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    pub state: Readiness,
    pub found: String,
    pub mend: Option<String>,
}

impl Verdict {
    /// As it should be.
    pub fn ok(found: impl Into<String>) -> Self {
        Self { state: Readiness::Ok, found: found.into(), mend: None }
    }

    /// Usable with something taken away.
    pub fn limited(found: impl Into<String>, mend: &str) -> Self {
        Self { state: Readiness::Limited, found: found.into(), mend: Some(mend.into()) }
    }

    /// Not there.
    pub fn missing(found: impl Into<String>, mend: &str) -> Self {
        Self { state: Readiness::Missing, found: found.into(), mend: Some(mend.into()) }
    }

    /// Usable with something taken away that no command gives back.
    pub fn limited_for_good(found: impl Into<String>) -> Self {
        Self { state: Readiness::Limited, found: found.into(), mend: None }
    }

    /// The line of `doctor`.
    pub fn about(self, id: &str, subject: &str, why: &str) -> Check {
        Check {
            id: id.into(),
            subject: subject.into(),
            state: self.state,
            found: self.found,
            why: why.into(),
            mend: self.mend,
        }
    }
}
