//! One language: whatever people read (texts in the source, help, reports, docs) and comments use none of the words of
//! `language/words.toml`, which has for each what to write instead.

use crate::common::binary;
use regex_lite::Regex;
use serde::Deserialize;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use strum::VariantArray;
use vmtax_findings::{Law, State, Verdict};
use vmtax_model::{Checkpoint, Layer, Machine, ShareMethod, WorkloadName};

#[derive(Deserialize)]
struct List {
    word: Vec<Entry>,
    #[serde(default)]
    allow: Vec<Allowed>,
}

#[derive(Deserialize)]
struct Entry {
    find: String,
    #[serde(default)]
    except: Vec<String>,
    write: String,
}

/// A phrase that one file needs: an older spelling that stays readable.
#[derive(Deserialize)]
struct Allowed {
    file: String,
    text: String,
}

struct Words {
    /// The name in a format string's braces, which nobody reads.
    placeholder: Regex,
    entries: Vec<(Vec<String>, Regex, Vec<Regex>, String)>,
    allow: Vec<Allowed>,
}

impl Words {
    fn read() -> Words {
        let list: List = toml::from_str(include_str!("language/words.toml")).unwrap();
        let expression = |text: &String| Regex::new(&format!("(?is){text}")).unwrap();
        let entries = list.word.iter().map(|word| {
            (
                literals(&word.find),
                expression(&word.find),
                word.except.iter().map(expression).collect(),
                word.write.clone(),
            )
        });
        let placeholder = Regex::new(r"\{[a-z_0-9.]+").unwrap();
        Words {
            placeholder,
            entries: entries.collect(),
            allow: list.allow,
        }
    }

    /// A line for each hit in a text. No phrase goes over a blank line, and short texts are searched faster.
    fn hits(&self, place: &str, line: usize, text: &str) -> Vec<String> {
        let mut line = line;
        let mut hits = Vec::new();
        for paragraph in text.split("\n\n") {
            hits.extend(self.hits_in_paragraph(place, line, paragraph));
            line += paragraph.matches('\n').count() + 2;
        }
        hits
    }

    fn hits_in_paragraph(&self, place: &str, line: usize, text: &str) -> Vec<String> {
        let allowed = self
            .allow
            .iter()
            .filter(|allowed| place.ends_with(&allowed.file));
        // Most texts have none.
        let text = match text.contains('{') {
            true => self.placeholder.replace_all(text, "{").into_owned(),
            false => text.to_owned(),
        };
        let text = allowed.fold(text, |text, allowed| text.replace(&allowed.text, ""));
        let mut hits = Vec::new();
        let lower = text.to_lowercase();
        for (literals, find, except, write) in &self.entries {
            if !literals.is_empty() && !literals.iter().any(|literal| lower.contains(literal)) {
                continue;
            }
            let text = except.iter().fold(text.clone(), |text, fine| {
                fine.replace_all(&text, "").into_owned()
            });
            hits.extend(find.find_iter(&text).map(|hit| {
                let line = line + text[..hit.start()].matches('\n').count();
                format!(
                    "{place}:{line}: \"{}\": write {write}",
                    hit.as_str().replace('\n', " ")
                )
            }));
        }
        hits
    }
}

/// The words of an expression, of which a hit has one: looking for them is faster by far.
fn literals(find: &str) -> Vec<String> {
    let optional = Regex::new(r"\[[^\]]*\]|\\.|[a-zA-Z]\?").unwrap();
    let plain = optional.replace_all(find, "_").to_lowercase();
    let words = plain.split(|c: char| !c.is_ascii_lowercase());
    words
        .filter(|word| word.len() > 2)
        .map(str::to_owned)
        .collect()
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .unwrap()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Hits in texts and comments of the crates' sources, tests apart.
fn in_sources(words: &Words) -> Vec<String> {
    let mut hits = Vec::new();
    for path in files(&root().join("crates"), "rs") {
        let name = path
            .strip_prefix(root())
            .unwrap()
            .to_str()
            .unwrap()
            .to_owned();
        if !name.contains("/src/") || is_test(&name) {
            continue;
        }
        for piece in pieces(&fs::read_to_string(&path).unwrap()) {
            hits.extend(words.hits(&name, piece.line, &piece.text));
        }
    }
    hits
}

fn output(program: &mut Command) -> String {
    let output = program.env("COLUMNS", "100").output().unwrap();
    assert!(
        output.status.success(),
        "{program:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap()
}

/// The names under "Commands:" and other headings of a help page that list commands.
fn subcommands(help: &str) -> Vec<String> {
    let options = help.split("\nOptions:").next().unwrap_or_default();
    let lines = options
        .lines()
        .filter(|line| line.starts_with("  ") && !line.starts_with("   "));
    let names = lines.filter_map(|line| line.split_whitespace().next());
    names
        .filter(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'))
        .map(str::to_owned)
        .collect()
}

/// Each help page, by its command line.
pub fn help_pages(command: &[String]) -> Vec<(String, String)> {
    let help = output(Command::new(binary()).args(command).arg("--help"));
    let mut pages = Vec::new();
    let has_commands = command.is_empty() || help.contains("\nCommands:\n");
    for name in subcommands(&help)
        .into_iter()
        .filter(|name| has_commands && name != "help" && name != "vmtax")
    {
        let inner = [command, &[name]].concat();
        pages.extend(help_pages(&inner));
    }
    pages.push((format!("vmtax {} --help", command.join(" ")), help));
    pages
}

/// The golden recordings' reports, by name.
fn reports() -> Vec<(String, String)> {
    let mut reports = Vec::new();
    for entry in fs::read_dir(root().join("crates/base/recording/tests/golden")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        for format in ["text", "html", "markdown"] {
            let mut program = Command::new(binary());
            program
                .args(["report", "--format", format])
                .arg(entry.path());
            reports.push((
                format!("vmtax report {name} --format {format}"),
                output(&mut program),
            ));
        }
    }
    reports
}

fn assert_none(hits: &[String]) {
    assert!(
        hits.is_empty(),
        "{} words of the list:\n{}",
        hits.len(),
        hits.join("\n")
    );
}

#[test]
fn the_glossary_has_the_names_of_the_code() {
    let glossary = fs::read_to_string(root().join("docs/glossary.md")).unwrap();
    let json = |verdict: &Verdict| {
        serde_json::to_value(verdict)
            .unwrap()
            .as_str()
            .unwrap()
            .to_owned()
    };
    let studies = "overhead layers exec compare scale share exits guest-antipatterns profile";
    let names = [
        Layer::VARIANTS
            .iter()
            .map(|layer| layer.label().to_owned())
            .collect::<Vec<_>>(),
        State::VARIANTS
            .iter()
            .map(|state| state.label().to_owned())
            .collect(),
        Checkpoint::ALL
            .iter()
            .map(|checkpoint| checkpoint.label().to_owned())
            .collect(),
        Verdict::VARIANTS.iter().map(json).collect(),
        Law::VARIANTS
            .iter()
            .map(|law| law.notation().to_owned())
            .collect(),
        Machine::ALL.iter().map(ToString::to_string).collect(),
        WorkloadName::ALL.iter().map(ToString::to_string).collect(),
        ShareMethod::ALL.iter().map(ToString::to_string).collect(),
        studies.split(' ').map(str::to_owned).collect(),
    ];
    let missing: Vec<_> = names
        .concat()
        .into_iter()
        .filter(|name| !glossary.contains(name))
        .collect();
    assert!(missing.is_empty(), "docs/glossary.md lacks {missing:?}");
}

/// Each key of a document, but for names that the user or the host gave: of options, and of what a guest's fields are.
fn keys(value: &Value, found: &mut BTreeSet<String>) {
    match value {
        Value::Array(all) => all.iter().for_each(|value| keys(value, found)),
        Value::Object(fields) => {
            for (key, value) in fields {
                found.insert(key.clone());
                if !["options", "plan", "host"].contains(&key.as_str()) {
                    keys(value, found);
                }
            }
        }
        _ => {}
    }
}

#[test]
fn docs_name_each_key_of_the_json_report() {
    let docs = fs::read_to_string(root().join("docs/json.md")).unwrap();
    let golden = root().join("crates/base/recording/tests/golden/schema-1");
    let report = output(
        Command::new(binary())
            .args(["report", "--json"])
            .arg(golden),
    );
    let report: Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["schema"], vmtax_findings::REPORT_SCHEMA);
    let mut found = BTreeSet::new();
    keys(&report, &mut found);
    let words: BTreeSet<_> = docs
        .split(|c: char| !(c.is_alphanumeric() || "_-".contains(c)))
        .collect();
    let missing: Vec<_> = found
        .iter()
        .filter(|key| !words.contains(key.as_str()))
        .collect();
    assert!(missing.is_empty(), "docs/json.md lacks {missing:?}");
}

#[test]
fn sources_use_the_words_of_the_field() {
    assert_none(&in_sources(&Words::read()));
}

#[test]
fn docs_use_the_words_of_the_field() {
    let words = Words::read();
    let top = ["README.md", "CONTRIBUTING.md"]
        .map(|name| root().join(name))
        .to_vec();
    let pages = [files(&root().join("docs"), "md"), top].concat();
    let hits = pages.iter().flat_map(|page| {
        let name = page.strip_prefix(root()).unwrap().display().to_string();
        words.hits(&name, 1, &fs::read_to_string(page).unwrap())
    });
    assert_none(&hits.collect::<Vec<_>>());
}

#[test]
fn help_uses_the_words_of_the_field() {
    let words = Words::read();
    let pages = help_pages(&[]);
    assert!(
        pages.len() > 15,
        "{:?}",
        pages.iter().map(|(name, _)| name).collect::<Vec<_>>()
    );
    let hits: Vec<_> = pages
        .iter()
        .flat_map(|(name, help)| words.hits(name, 1, help))
        .collect();
    assert_none(&hits);
}

#[test]
fn reports_use_the_words_of_the_field() {
    let words = Words::read();
    let reports = reports();
    let hits: Vec<_> = reports
        .iter()
        .flat_map(|(name, text)| words.hits(name, 1, text))
        .collect();
    assert_none(&hits);
}

#[test]
fn a_word_is_found_in_texts_and_comments_with_its_line() {
    let words = Words::read();
    let text = "/// Looks at it.\n///\n/// And mends\n/// it.\nfn a() {\n    // A law.\n    b(\"the \\\n       cure\", 'x', '\"');\n    \
                r#\"a \"law\" and\n growth law\"#;\n}\n#[cfg(test)]\nmod tests {\n    // a cure\n}\n";
    let found = pieces(text)
        .into_iter()
        .flat_map(|p| words.hits("f", p.line, &p.text));
    let lines: Vec<_> = found
        .map(|hit| hit.split(": write").next().unwrap().to_owned())
        .collect();
    let expected = [
        "f:1: \"Looks at\"",
        "f:3: \"mends\"",
        "f:6: \"law\"",
        "f:7: \"cure\"",
        "f:9: \"law\"",
    ];
    assert_eq!(lines, expected);
}

/// A string literal or a block of comment lines.
pub struct Piece {
    pub is_comment: bool,
    /// The first of its lines, from 1.
    pub line: usize,
    pub text: String,
}

/// Files of tests and of what only tests use, whose texts nobody reads.
pub fn is_test(name: &str) -> bool {
    let file = name.rsplit('/').next().unwrap_or(name);
    name.contains("/tests/")
        || name.contains("/synthetic/")
        || file.starts_with("test_")
        || file.ends_with("_tests.rs")
        || ["tests.rs", "testing.rs", "coverage.rs", "simulated.rs"].contains(&file)
}

/// All texts and comments before the file's tests. Lines of one comment are one piece, for phrases go over line ends.
pub fn pieces(source: &str) -> Vec<Piece> {
    let end = source.find("\n#[cfg(test)]\nmod ").unwrap_or(source.len());
    let mut rest = Rest {
        text: &source[..end],
        at: 0,
        line: 1,
    };
    let mut pieces: Vec<Piece> = Vec::new();
    let mut before = '\n';
    while let Some(next) = rest.text[rest.at..].chars().next() {
        let here = &rest.text[rest.at..];
        let line = rest.line;
        if here.starts_with("//") {
            let text = rest.take(here.find('\n').unwrap_or(here.len()));
            let text = text.trim_start_matches(['/', '!']);
            match pieces.last_mut() {
                Some(last)
                    if last.is_comment
                        && last.line + last.text.matches('\n').count() + 1 == line =>
                {
                    last.text.push('\n');
                    last.text.push_str(text);
                }
                _ => pieces.push(Piece {
                    is_comment: true,
                    line,
                    text: text.to_owned(),
                }),
            }
        } else if let Some(hashes) =
            raw(here).filter(|_| !before.is_alphanumeric() && before != '_')
        {
            rest.take(here.find('"').unwrap_or_default() + 1);
            let here = &rest.text[rest.at..];
            let text = rest
                .take(
                    here.find(&format!("\"{}", "#".repeat(hashes)))
                        .unwrap_or(here.len()),
                )
                .to_owned();
            rest.take(hashes + 1);
            pieces.push(Piece {
                is_comment: false,
                line,
                text,
            });
        } else if next == '"' {
            rest.take(1);
            let text = rest.take(closing(&rest.text[rest.at..])).to_owned();
            rest.take(1);
            pieces.push(Piece {
                is_comment: false,
                line,
                text: continued(&text),
            });
        } else if next == '\'' {
            rest.take(character(here));
        } else {
            rest.take(next.len_utf8());
        }
        before = next;
    }
    pieces
}

struct Rest<'a> {
    text: &'a str,
    at: usize,
    line: usize,
}

impl<'a> Rest<'a> {
    /// The next bytes, as many as there are.
    fn take(&mut self, bytes: usize) -> &'a str {
        let taken = &self.text[self.at..self.text.len().min(self.at + bytes)];
        self.at += taken.len();
        self.line += taken.matches('\n').count();
        taken
    }
}

/// The hashes of a raw string that begins here.
fn raw(here: &str) -> Option<usize> {
    let marks = here.strip_prefix('r')?;
    let hashes = marks.len() - marks.trim_start_matches('#').len();
    marks[hashes..].starts_with('"').then_some(hashes)
}

/// The length of a string's inside.
fn closing(inside: &str) -> usize {
    let mut escaped = false;
    for (at, c) in inside.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at,
            _ => {}
        }
    }
    inside.len()
}

/// The length of a character literal; of a lifetime's mark, one.
fn character(here: &str) -> usize {
    let inside = &here[1..];
    if inside.starts_with('\\') {
        return here[3..].find('\'').map_or(1, |at| at + 4);
    }
    let width = inside.chars().next().map_or(0, char::len_utf8);
    if inside[width..].starts_with('\'') {
        width + 2
    } else {
        1
    }
}

/// A text whose lines end in `\` is one line.
fn continued(text: &str) -> String {
    let mut lines = text.split("\\\n");
    let first = lines.next().unwrap_or_default().to_owned();
    lines.fold(first, |text, line| text + line.trim_start())
}
