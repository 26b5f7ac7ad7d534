use vmtax_model::{Check, HostProblem, Readiness};

/// Result of a check, before it has a subject.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CheckResult {
    pub state: Readiness,
    pub found: String,
    pub problem: Option<HostProblem>,
}

impl CheckResult {
    /// As it should be.
    pub fn ok(found: impl Into<String>) -> Self {
        Self {
            state: Readiness::Ok,
            found: found.into(),
            problem: None,
        }
    }

    /// Usable with something taken away.
    pub fn limited(found: impl Into<String>, problem: HostProblem) -> Self {
        Self {
            state: Readiness::Limited,
            found: found.into(),
            problem: Some(problem),
        }
    }

    /// Not available on this host.
    pub fn missing(found: impl Into<String>, problem: HostProblem) -> Self {
        Self {
            state: Readiness::Missing,
            found: found.into(),
            problem: Some(problem),
        }
    }

    /// Usable with something taken away that nobody can give back.
    pub fn limited_for_good(found: impl Into<String>) -> Self {
        Self {
            state: Readiness::Limited,
            found: found.into(),
            problem: None,
        }
    }

    /// The check. The rule about its problem has the remedies.
    pub fn about(self, id: &str, subject: &str, why: &str) -> Check {
        Check {
            id: id.into(),
            subject: subject.into(),
            state: self.state,
            found: self.found,
            why: why.into(),
            problem: self.problem,
            remedies: Vec::new(),
        }
    }
}
