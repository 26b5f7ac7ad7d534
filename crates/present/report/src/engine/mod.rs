//! A report as sections of blocks, and its renderers: for a terminal, a page, Markdown. A study writes its report once.

mod comment;
mod markdown;
mod page;
mod table;
mod terminal;
mod units;

pub use comment::COMMENT_LINES;
pub use page::prose;
pub use table::{Cell, Column, Filled, Row, Table, Tone, figures, words};
pub use units::alike;

use crate::text::{Paint, only_if};
use maud::Markup;
use vmtax_findings::Advice;
use vmtax_model::{ChangeCost, Remedy, SettingPlace};
use vmtax_rules::MAX_ADVICE;

/// A renderer of whole reports.
type Renderer = fn(&Report<'_>) -> String;

/// Every format that a file or another program takes: its name as typed, and its renderer. What a terminal shows depends
/// on its width and is apart.
pub const FORMATS: &[(&str, Renderer)] = &[
    ("html", |report| report.html()), // a page that stands alone
    ("markdown", |report| report.markdown()),
];

/// A report. The fields from `answer` on stand in the order in which every format shows them.
#[derive(Default)]
pub struct Report<'a> {
    /// The study, which names the page's style: "overhead", "layers".
    pub study: &'static str,
    /// The title, a noun phrase or a question.
    pub title: String,
    /// Origin of the report: version, time, command.
    pub origin: Origin,
    /// One sentence with the figure that answers the question. Empty: the title stands in its place.
    pub answer: String,
    /// Basis of the answer: n, machines, date, host, as noun phrases.
    pub basis: Vec<String>,
    /// The commands to run next, without backticks.
    pub next: Vec<String>,
    /// The answer part by part, where there are parts: a variant each, a metric each.
    pub tiles: Vec<Tile>,
    /// Findings with their remedies, the most important first; five are shown.
    pub advice: Vec<Advice>,
    /// Pictures and tables.
    pub sections: Vec<Section<'a>>,
    /// Warnings, what was not measured, notes.
    pub notices: Vec<Notice>,
    /// Method by which the figures are made, as sentences.
    pub method: Vec<String>,
}

impl Report<'_> {
    /// Returns the beginning of the report: the answer, or the title if there is no answer.
    pub fn headline(&self) -> &str {
        if self.answer.is_empty() {
            &self.title
        } else {
            &self.answer
        }
    }

    /// The basis of the answer, behind the title where that is not the headline.
    pub fn titled_basis(&self) -> Vec<&str> {
        let title = (!self.answer.is_empty() && !self.title.is_empty()).then_some(&self.title);
        title
            .into_iter()
            .chain(&self.basis)
            .map(String::as_str)
            .collect()
    }

    /// The report in the format of that name; `None` for a name that is not in [`FORMATS`].
    pub fn in_format(&self, name: &str) -> Option<String> {
        let (_, render) = FORMATS.iter().find(|(known, _)| *known == name)?;
        Some(render(self))
    }

    /// Returns the advice that is shown, a text each.
    fn advice_texts(&self) -> Vec<String> {
        self.advice
            .iter()
            .take(MAX_ADVICE)
            .map(advice_text)
            .collect()
    }
}

/// Origin of a report.
#[derive(Clone, Default)]
pub struct Origin {
    /// The version of vmtax that measured.
    pub vmtax: String,
    /// When the measurement began, RFC 3339.
    pub started: String,
    /// The command that makes the report again.
    pub command: String,
}

/// A part of the answer.
#[derive(Default)]
pub struct Tile {
    /// Class that gives the tile its colour: a machine's name or a word of the page's style.
    pub class: &'static str,
    /// The figure that stands out; may be empty.
    pub figure: String,
    /// Sentence of the tile.
    pub text: String,
    /// Limits of the sentence; may be empty.
    pub limits: String,
}

/// A kind of notice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// Warning: a reason why the figures are weaker.
    Warning,
    /// Missing data: something that could not be measured.
    Missing,
    /// Note about anything else.
    Note,
}

/// A titled list. An item may end in lines of commands, to be copied.
pub struct Notice {
    /// Title of the list.
    pub title: &'static str,
    /// Kind of the notice.
    pub kind: NoticeKind,
    /// Items of the list, as sentences.
    pub items: Vec<String>,
}

impl Notice {
    /// Makes a list of warnings: reasons why the figures are weaker.
    pub fn warnings(items: Vec<String>) -> Notice {
        Notice {
            title: "Warnings",
            kind: NoticeKind::Warning,
            items,
        }
    }

    /// Makes a list of data that could not be measured.
    pub fn missing(title: &'static str, items: Vec<String>) -> Notice {
        Notice {
            title,
            kind: NoticeKind::Missing,
            items,
        }
    }

    /// Makes a list of data that could not be observed.
    pub fn not_observed(items: Vec<String>) -> Notice {
        Notice::missing("Not observed", items)
    }

    /// Makes a list of notes about anything else.
    pub fn notes(title: &'static str, items: Vec<String>) -> Notice {
        Notice {
            title,
            kind: NoticeKind::Note,
            items,
        }
    }
}

/// A longer line to copy stands alone.
const LONG_LINE: usize = 72;

/// One finding with its remedies and its source; below it the lines to copy that are too long to stand in it.
pub fn advice_text(advice: &Advice) -> String {
    let is_alone = |line: &str| line.contains('\n') || line.chars().count() > LONG_LINE;
    let mut text = advice.finding.clone();
    for remedy in &advice.remedies {
        let line = only_if(!is_alone(&remedy.line), remedy.line.as_str());
        text += &format!(" {}", with_line(remedy, line));
    }
    if !advice.source.is_empty() {
        text += &format!(" (Source: {})", advice.source_title());
    }
    let lines = advice
        .remedies
        .iter()
        .map(|remedy| remedy.line.as_str())
        .filter(|line| is_alone(line));
    lines.fold(text, |text, line| text + "\n" + line)
}

/// Returns the action of a remedy, its place and its cost. If the remedy has several lines to copy, the text contains
/// none of them.
pub fn remedy_text(remedy: &Remedy) -> String {
    with_line(remedy, only_if(!remedy.line.contains('\n'), &remedy.line))
}

fn with_line(remedy: &Remedy, line: &str) -> String {
    let at = match (remedy.place, remedy.cost) {
        (SettingPlace::Vmtax, _) | (SettingPlace::Instruction, None) => String::new(),
        (SettingPlace::Instruction, Some(cost)) => format!(" ({cost})"),
        (place, None) => format!(" ({place})"),
        (place, Some(ChangeCost::Live)) => format!(" ({place}, no restart)"),
        // A parameter of KVM that is read when its module is loaded.
        (SettingPlace::HostSysfs, Some(cost)) if remedy.line.contains("/etc/modprobe.d/") => {
            format!(" (kernel module option, {cost})")
        }
        (place, Some(cost)) => format!(" ({place}, {cost})"),
    };
    let line = only_if(!line.is_empty(), format!(": `{line}`"));
    format!("{}{at}{line}.", remedy.action)
}

/// A heading with its blocks.
pub struct Section<'a> {
    /// The heading; may be empty.
    pub title: String,
    /// True if a terminal shows the section only if asked for details.
    pub detail: bool,
    /// Blocks below the heading.
    pub blocks: Vec<Block<'a>>,
}

impl<'a> Section<'a> {
    /// One that every form of the report shows.
    pub fn new(title: impl Into<String>, blocks: impl IntoIterator<Item: Into<Block<'a>>>) -> Self {
        Section {
            title: title.into(),
            detail: false,
            blocks: blocks.into_iter().map(Into::into).collect(),
        }
    }

    /// One that a terminal shows only if asked for details.
    pub fn detail(
        title: impl Into<String>,
        blocks: impl IntoIterator<Item: Into<Block<'a>>>,
    ) -> Self {
        Section {
            detail: true,
            ..Section::new(title, blocks)
        }
    }
}

/// A piece of a section.
pub enum Block<'a> {
    /// Paragraph of text.
    Text(String),
    /// Lines as they are.
    Lines(String),
    /// Colours with what they stand for: class and name.
    Legend(Vec<(&'static str, String)>),
    /// Names with their values.
    Facts(Vec<(String, String)>),
    /// Rows and columns.
    Table(Table),
    /// Picture with its caption.
    Figure(Figure<'a>),
    /// Small pictures side by side, of this class.
    Figures(&'static str, Vec<Figure<'a>>),
    /// Details to read last, with their heading: folded on a page, on a terminal only if asked for details.
    Folded(String, Vec<Block<'a>>),
    /// Blocks that take time to make: made only where they are shown.
    Deferred(Box<dyn Fn() -> Vec<Block<'static>> + 'a>),
}

impl<'a> Block<'a> {
    /// Details to read last, below this heading.
    pub fn folded(
        title: impl Into<String>,
        blocks: impl IntoIterator<Item: Into<Block<'a>>>,
    ) -> Self {
        Block::Folded(title.into(), blocks.into_iter().map(Into::into).collect())
    }
}

impl From<Table> for Block<'_> {
    fn from(table: Table) -> Self {
        Block::Table(table)
    }
}

impl<'a> From<Figure<'a>> for Block<'a> {
    fn from(figure: Figure<'a>) -> Self {
        Block::Figure(figure)
    }
}

/// A picture with its caption.
pub struct Figure<'a> {
    /// Title of the picture; may be empty.
    pub title: String,
    /// Chart that draws the picture.
    pub chart: Box<dyn Chart + 'a>,
    /// Text on how to read the picture; may be empty.
    pub caption: String,
    /// Table in place of the picture, where nothing is drawn.
    pub table: Option<Table>,
    /// True if a page shows the table below the picture.
    pub below: bool,
}

impl<'a> Figure<'a> {
    /// A picture alone.
    pub fn new(chart: impl Chart + 'a) -> Figure<'a> {
        Figure {
            title: String::new(),
            chart: Box::new(chart),
            caption: String::new(),
            table: None,
            below: false,
        }
    }
}

/// A picture: the one block that draws itself, since each picture is of one kind only.
pub trait Chart {
    /// As part of a page.
    fn svg(&self) -> Markup;

    /// With characters, for pictures that can be.
    fn text(&self, _width: usize, _paint: Paint) -> Option<String> {
        None
    }

    /// With characters, for Markdown, for pictures whose table a terminal shows in their place.
    fn sketch(&self, width: usize) -> Option<String> {
        self.text(width, Paint(false))
    }
}
