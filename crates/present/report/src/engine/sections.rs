//! What a report consists of. Text may hold commands between backticks and comes as it is: each renderer makes it harmless.

use super::table::Table;
use crate::text::Paint;
use maud::Markup;
use vmtax_model::{Advice, ChangeCost, Remedy, SettingPlace};

/// Advice that a report shows.
pub(super) const MAX_ADVICE: usize = 5;

/// A report. The fields from `answer` on stand in the order in which every format shows them.
#[derive(Default)]
pub struct Report<'a> {
    /// The study, which names the page's style: "overhead", "layers".
    pub study: &'static str,
    /// The title, a noun phrase or a question.
    pub title: String,
    /// How it came about.
    pub origin: Origin,
    /// One sentence with the figure that answers the question. Empty: the title stands in its place.
    pub answer: String,
    /// What the answer rests on: n, machines, date, host, as noun phrases.
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
    /// How the figures are made.
    pub method: Vec<String>,
}

impl Report<'_> {
    /// What the report begins with: the answer, or where there is none the title.
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
}

/// What made a report.
#[derive(Default)]
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
    /// Its colour: a machine's name or a word of the page's style.
    pub class: &'static str,
    /// The figure that stands out; may be empty.
    pub figure: String,
    /// The sentence.
    pub text: String,
    /// What limits it; may be empty.
    pub limits: String,
}

/// A kind of notice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum NoticeKind {
    /// What weakens the figures.
    Warning,
    /// What could not be measured.
    Missing,
    /// What else holds.
    Note,
}

/// A titled list. An item may end in lines of commands, to be copied.
pub struct Notice {
    /// What it is called.
    pub title: &'static str,
    /// Which kind it is.
    pub kind: NoticeKind,
    /// The sentences.
    pub items: Vec<String>,
}

impl Notice {
    /// What weakens the figures.
    pub fn warnings(items: Vec<String>) -> Notice {
        Notice {
            title: "Warnings",
            kind: NoticeKind::Warning,
            items,
        }
    }

    /// What could not be measured.
    pub fn missing(title: &'static str, items: Vec<String>) -> Notice {
        Notice {
            title,
            kind: NoticeKind::Missing,
            items,
        }
    }

    /// What else holds.
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
        let line = if is_alone(&remedy.line) {
            ""
        } else {
            remedy.line.as_str()
        };
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

/// What to do, where, and what it costs. Of several lines to copy none is in it.
pub fn remedy_text(remedy: &Remedy) -> String {
    with_line(
        remedy,
        if remedy.line.contains('\n') {
            ""
        } else {
            &remedy.line
        },
    )
}

fn with_line(remedy: &Remedy, line: &str) -> String {
    let at = match (remedy.place, remedy.cost) {
        (SettingPlace::Vmtax, _) | (SettingPlace::Instruction, None) => String::new(),
        (SettingPlace::Instruction, Some(cost)) => format!(" ({cost})"),
        (place, None) => format!(" ({place})"),
        (place, Some(ChangeCost::Live)) => format!(" ({place}, no restart)"),
        (place, Some(cost)) => format!(" ({place}, {cost})"),
    };
    let line = if line.is_empty() {
        String::new()
    } else {
        format!(": `{line}`")
    };
    format!("{}{at}{line}.", remedy.action)
}

/// A heading with its blocks.
pub struct Section<'a> {
    /// The heading; may be empty.
    pub title: String,
    /// Whether a terminal shows it only if asked for details.
    pub detail: bool,
    /// What it holds.
    pub blocks: Vec<Block<'a>>,
}

impl<'a> Section<'a> {
    /// One that every form of the report shows.
    pub fn new(title: impl Into<String>, blocks: Vec<Block<'a>>) -> Self {
        Section {
            title: title.into(),
            detail: false,
            blocks,
        }
    }

    /// One that a terminal shows only if asked for details.
    pub fn detail(title: impl Into<String>, blocks: Vec<Block<'a>>) -> Self {
        Section {
            title: title.into(),
            detail: true,
            blocks,
        }
    }
}

/// A piece of a section.
pub enum Block<'a> {
    /// A paragraph.
    Text(String),
    /// Lines as they are.
    Lines(String),
    /// Colours with what they stand for: class and name.
    Legend(Vec<(&'static str, String)>),
    /// Names with their values.
    Facts(Vec<(String, String)>),
    /// Rows and columns.
    Table(Table),
    /// A picture.
    Figure(Figure<'a>),
    /// Small pictures side by side, of this class.
    Figures(&'static str, Vec<Figure<'a>>),
    /// What is read last: folded on a page, on a terminal only if asked for details.
    Folded(String, Vec<Block<'a>>),
    /// What takes time to make, and is made where it is shown.
    Deferred(Box<dyn Fn() -> Vec<Block<'static>> + 'a>),
}

/// A picture with its caption.
pub struct Figure<'a> {
    /// What it shows; may be empty.
    pub title: String,
    /// The picture.
    pub chart: Box<dyn Chart + 'a>,
    /// How to read it; may be empty.
    pub caption: String,
    /// What stands in its place where nothing is drawn.
    pub table: Option<Table>,
    /// Whether a page shows the table below the picture.
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
}
