//! Plans as TOML and in recordings. The only place that knows former versions: plans without `study` get it from their
//! tables, and former names are aliases.

use super::PlanError;
use super::command::CommandSpec;
use super::definition::Plan;
use super::guest::Guest;
use super::study::{Compare, ObservedVm, ProfileSettings, SizeRange, Study, WithCommand};
use super::variant::Variant;
use crate::{
    GuestTuneSpec, ImportedFiles, Machine, Missing, Probes, SCHEMA, Tree, TuneSpec, WorkloadSpec,
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct PlanFile {
    #[serde(default = "current_schema")]
    schema: u32,
    #[serde(default = "default_name")]
    name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    study: Option<String>,
    rounds: u32,
    #[serde(default)]
    seed: u64,
    #[serde(default = "default_timeout", alias = "deadline-s")]
    timeout_s: u32,
    machines: Vec<Machine>,
    #[serde(default = "unobserved", skip_serializing_if = "is_unobserved")]
    probes: Vec<Probes>,
    #[serde(default)]
    guest: Guest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tree: Option<Tree>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    command: Option<Box<CommandSpec>>,
    #[serde(
        default = "plain",
        rename = "variant",
        skip_serializing_if = "is_plain"
    )]
    variants: Vec<Variant>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    range: Option<SizeRange>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    compare: Option<Compare>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    profile: Option<ProfileSettings>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    vm: Option<ObservedVm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tune: Option<Box<TuneSpec>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tune_guest: Option<Box<GuestTuneSpec>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    import: Option<ImportedFiles>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    not_measured: Vec<Missing>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reproduces: Option<String>,
    #[serde(rename = "workload")]
    workloads: Vec<WorkloadSpec>,
}

fn current_schema() -> u32 {
    SCHEMA
}

fn default_timeout() -> u32 {
    Plan::TIMEOUT_S
}

fn default_name() -> String {
    "run".to_owned()
}

fn plain() -> Vec<Variant> {
    vec![Variant::default()]
}

fn is_plain(variants: &Vec<Variant>) -> bool {
    *variants == plain()
}

fn unobserved() -> Vec<Probes> {
    vec![Probes::None]
}

fn is_unobserved(probes: &Vec<Probes>) -> bool {
    *probes == unobserved()
}

impl PlanFile {
    /// The study of a plan that does not name it.
    fn conclude(&self) -> &'static str {
        let shares = || self.variants.iter().any(|v| v.set.contains_key("share"));
        match Study::default_for(&self.workloads) {
            _ if self.compare.is_some() => "compare",
            _ if self.profile.is_some() => "profile",
            _ if self.tune_guest.is_some() => "tune-guest",
            _ if self.range.is_some() => "scale",
            Study::Overhead if self.command.is_some() => "exec",
            Study::Overhead if self.tree.is_some() && shares() => "share",
            Study::Overhead if self.probes.iter().any(|probes| probes.follows_requests()) => {
                "layers"
            }
            study => study.name(),
        }
    }
}

/// Takes the table that a study needs.
fn needed<T>(study: &str, title: &str, table: &mut Option<T>) -> Result<T, PlanError> {
    table.take().ok_or_else(|| {
        PlanError::Invalid(format!(
            "the study '{study}' takes a table [{title}]: add it"
        ))
    })
}

impl PlanFile {
    /// Takes the study of that name, with its tables.
    fn take_study(&mut self, name: &str) -> Result<Study, PlanError> {
        if let Ok(study) = name.parse() {
            return Ok(Study::Vm(study, needed(name, "vm", &mut self.vm)?));
        }
        Ok(match name {
            "exec" => Study::Exec(needed(name, "command", &mut self.command)?),
            "compare" => Study::Compare(WithCommand {
                settings: needed(name, "compare", &mut self.compare)?,
                command: self.command.take(),
            }),
            "scale" => Study::Scale(needed(name, "range", &mut self.range)?),
            "profile" => Study::Profile(WithCommand {
                settings: needed(name, "profile", &mut self.profile)?,
                command: self.command.take(),
            }),
            "tune" => Study::Tune(needed(name, "tune", &mut self.tune)?),
            "tune-guest" => Study::TuneGuest(WithCommand {
                settings: needed(name, "tune-guest", &mut self.tune_guest)?,
                command: self.command.take(),
            }),
            "import" => Study::Import(needed(name, "import", &mut self.import)?),
            other => Study::without_table(other).ok_or_else(|| {
                PlanError::Invalid(format!(
                    "unknown study '{}': leave it out, and it is concluded from the rest",
                    other.escape_default()
                ))
            })?,
        })
    }

    /// The title of a table that the study did not take.
    fn table_left(&self) -> Option<&'static str> {
        let tables = [
            ("command", self.command.is_some()),
            ("range", self.range.is_some()),
            ("compare", self.compare.is_some()),
            ("profile", self.profile.is_some()),
            ("vm", self.vm.is_some()),
            ("tune", self.tune.is_some()),
            ("tune-guest", self.tune_guest.is_some()),
            ("import", self.import.is_some()),
        ];
        let mut left = tables.into_iter().filter(|(_, is_left)| *is_left);
        left.next().map(|(title, _)| title)
    }
}

impl TryFrom<PlanFile> for Plan {
    type Error = PlanError;
    fn try_from(mut file: PlanFile) -> Result<Plan, PlanError> {
        let name = file.study.take();
        let name = name.unwrap_or_else(|| file.conclude().to_owned());
        let study = file.take_study(&name)?;
        if let Some(table) = file.table_left() {
            return Err(PlanError::Invalid(format!(
                "the study '{name}' has no table [{table}]: leave it out"
            )));
        }
        Ok(Plan {
            schema: file.schema,
            name: file.name,
            study,
            rounds: file.rounds,
            seed: file.seed,
            timeout_s: file.timeout_s,
            machines: file.machines,
            probes: file.probes,
            guest: file.guest,
            tree: file.tree,
            variants: file.variants,
            not_measured: file.not_measured,
            reproduces: file.reproduces,
            workloads: file.workloads,
        })
    }
}

impl From<Plan> for PlanFile {
    fn from(plan: Plan) -> PlanFile {
        PlanFile {
            schema: plan.schema,
            name: plan.name.clone(),
            study: Some(plan.study.name().to_owned()),
            rounds: plan.rounds,
            seed: plan.seed,
            timeout_s: plan.timeout_s,
            command: plan.command().cloned().map(Box::new),
            range: plan.range().cloned(),
            compare: plan.comparison(),
            profile: plan.profile().cloned(),
            vm: plan.observed_vm().cloned(),
            tune: plan.tune().cloned().map(Box::new),
            tune_guest: plan.guest_tune().cloned().map(Box::new),
            import: plan.imported().cloned(),
            machines: plan.machines,
            probes: plan.probes,
            guest: plan.guest,
            tree: plan.tree,
            variants: plan.variants,
            not_measured: plan.not_measured,
            reproduces: plan.reproduces,
            workloads: plan.workloads,
        }
    }
}

impl Serialize for Plan {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        PlanFile::from(self.clone()).serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Plan {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Plan, D::Error> {
        Plan::try_from(PlanFile::deserialize(deserializer)?).map_err(de::Error::custom)
    }
}

impl Plan {
    /// Reads a plan from TOML and checks it.
    ///
    /// # Errors
    /// [`PlanError`], naming the line for what TOML can tell.
    pub fn from_toml(text: &str) -> Result<Plan, PlanError> {
        let file: PlanFile = toml::from_str(text)
            .map_err(|e| PlanError::Syntax(e.to_string().trim_end().to_owned()))?;
        let plan = Plan::try_from(file)?;
        plan.check()?;
        Ok(plan)
    }

    /// The plan as TOML that [`Plan::from_toml`] reads.
    ///
    /// # Errors
    /// [`PlanError::Syntax`] for values TOML has no form for (a path that is not UTF-8).
    pub fn to_toml(&self) -> Result<String, PlanError> {
        toml::to_string(self).map_err(|e| PlanError::Syntax(e.to_string()))
    }
}
