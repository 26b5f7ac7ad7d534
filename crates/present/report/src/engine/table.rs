//! Tables: what they hold, and which columns give way where there is little room.

use vmtax_model::number::NONE;

/// Rows under named columns.
#[derive(Default, Clone)]
pub struct Table {
    /// What it shows, for those who do not see it.
    pub label: String,
    /// The columns.
    pub columns: Vec<Column>,
    /// The rows.
    pub rows: Vec<Row>,
    /// Rows that a terminal shows without details; 0: all.
    pub most: usize,
    /// Whether columns that do not fit follow in a further table under the same first column.
    pub parts: bool,
    /// Tells whether it names the columns that gave way, where nothing else on the page has what they say.
    pub names_left_out: bool,
    /// What its signs mean and what it leaves out.
    pub notes: Vec<String>,
}

/// A column. On a terminal columns give way step by step until the table fits: see [`Column::spare`], [`Column::shorten`].
#[derive(Default, Clone)]
pub struct Column {
    /// Its head.
    pub name: String,
    /// Whether it holds figures: aligned to the right.
    pub figures: bool,
    /// The step from which on it is left out; 0: never.
    pub spare: u8,
    /// The step from which on its cells' short forms are used; 0: never.
    pub shorten: u8,
    /// The fewest characters of its cells: wanted, and where nothing else gives way any more. `None`: all of them.
    pub least: Option<(usize, usize)>,
    /// Whether what is too long is cut, not broken into lines.
    pub cut: bool,
    /// What the signs in its cells mean: told below the table where the column is shown.
    pub note: Option<String>,
}

impl Column {
    /// A column of words.
    pub fn words(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            ..Column::default()
        }
    }

    /// A column of figures.
    pub fn figures(name: impl Into<String>) -> Column {
        Column {
            name: name.into(),
            figures: true,
            ..Column::default()
        }
    }

    /// The same, left out from a step on.
    pub fn spare(self, step: u8) -> Column {
        Column {
            spare: step,
            ..self
        }
    }

    /// The same, with short forms from a step on.
    pub fn shorten(self, step: u8) -> Column {
        Column {
            shorten: step,
            ..self
        }
    }

    /// The same, with what its signs mean.
    pub fn noted(self, note: Option<String>) -> Column {
        Column { note, ..self }
    }

    /// The same, its cells broken into lines of at least so many characters: wanted, and at the worst.
    pub fn broken(self, wanted: usize, worst: usize) -> Column {
        Column {
            least: Some((wanted, worst)),
            ..self
        }
    }

    /// The same, its cells cut to at least so many characters: wanted, and at the worst.
    pub fn cut(self, wanted: usize, worst: usize) -> Column {
        Column {
            cut: true,
            ..self.broken(wanted, worst)
        }
    }
}

/// A row.
#[derive(Clone)]
pub enum Row {
    /// A heading of the rows below it.
    Group(String),
    /// One cell for each column; missing ones are empty.
    Cells(Vec<Cell>),
    /// The same, set off from the rows above.
    First(Vec<Cell>),
}

/// What a cell's colour says.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// Nothing.
    #[default]
    Plain,
    /// Good.
    Good,
    /// Bad.
    Bad,
    /// Notable.
    Warn,
    /// Of little weight.
    Soft,
}

/// A cell.
#[derive(Default, Clone)]
pub struct Cell {
    /// The text.
    pub text: String,
    /// The form for little room; `None`: the text.
    pub short: Option<String>,
    /// The colour.
    pub tone: Tone,
    /// Whether it stands out.
    pub strong: bool,
    /// The class of the mark before it: a machine, a layer. Empty: none.
    pub key: &'static str,
    /// More about it, where the pointer rests.
    pub hint: String,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Cell {
        Cell {
            text: text.into(),
            ..Cell::default()
        }
    }
}

impl Cell {
    /// One that stands out.
    pub fn strong(text: impl Into<String>) -> Cell {
        Cell {
            strong: true,
            ..Cell::from(text)
        }
    }

    /// One with a mark in the colour of this class.
    pub fn key(class: &'static str, text: impl Into<String>) -> Cell {
        Cell {
            key: class,
            ..Cell::from(text)
        }
    }

    /// The same in a colour.
    pub fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    /// The same with a short form.
    pub fn short(self, short: impl Into<String>) -> Cell {
        Cell {
            short: Some(short.into()),
            ..self
        }
    }

    /// The same with more about it.
    pub fn hint(self, hint: impl Into<String>) -> Cell {
        Cell {
            hint: hint.into(),
            ..self
        }
    }
}

/// A table with a row for each of several items, filled column by column.
pub struct Filled<R> {
    table: Table,
    items: Vec<R>,
}

impl<R> Filled<R> {
    /// Adds a column, and of each item its cell.
    pub fn column<C: Into<Cell>>(self, column: Column, cell: impl Fn(&R) -> C) -> Filled<R> {
        self.columns([column], |item| [cell(item)])
    }

    /// Adds columns of figures with these heads.
    pub fn figures<C: Into<Cell>, const N: usize>(
        self,
        names: [&str; N],
        cells: impl Fn(&R) -> [C; N],
    ) -> Filled<R> {
        self.columns(names.map(Column::figures), cells)
    }

    /// Adds columns whose cells come together.
    pub fn columns<C: Into<Cell>, const N: usize>(
        mut self,
        columns: [Column; N],
        cells: impl Fn(&R) -> [C; N],
    ) -> Filled<R> {
        self.table.columns.extend(columns);
        for (row, item) in self.table.rows.iter_mut().zip(&self.items) {
            if let Row::Cells(row) = row {
                row.extend(cells(item).map(Into::into));
            }
        }
        self
    }

    /// The table.
    pub fn done(self) -> Table {
        self.table
    }
}

impl Table {
    /// One without rows.
    pub fn new(label: impl Into<String>, columns: Vec<Column>) -> Table {
        Table {
            label: label.into(),
            columns,
            ..Table::default()
        }
    }

    /// One with a row for each of these, whose columns `column` adds.
    pub fn of<R>(label: impl Into<String>, items: impl IntoIterator<Item = R>) -> Filled<R> {
        let items: Vec<R> = items.into_iter().collect();
        let rows = items.iter().map(|_| Row::Cells(Vec::new())).collect();
        Filled {
            table: Table {
                rows,
                ..Table::new(label, Vec::new())
            },
            items,
        }
    }

    /// The same, whose columns follow in a further table where they do not fit.
    pub fn in_parts(self) -> Table {
        Table {
            parts: true,
            ..self
        }
    }

    /// Returns the table as one that names the columns that do not fit.
    pub fn naming_left_out(self) -> Table {
        Table {
            names_left_out: true,
            ..self
        }
    }

    /// The same with these rows.
    pub fn rows<C: Into<Cell>>(mut self, rows: impl IntoIterator<Item = Vec<C>>) -> Table {
        rows.into_iter().for_each(|cells| self.row(cells));
        self
    }

    /// The same, of which a terminal shows so many rows.
    pub fn most(self, most: usize) -> Table {
        Table { most, ..self }
    }

    /// What is told below it: of its columns together, then of the whole.
    pub fn all_notes(&self) -> impl Iterator<Item = String> + '_ {
        self.notes_with(
            self.columns
                .iter()
                .filter_map(|column| column.note.as_deref())
                .collect(),
        )
    }

    /// The same, with the notes of these columns alone.
    pub fn notes_with<'a>(&'a self, of_columns: Vec<&'a str>) -> impl Iterator<Item = String> + 'a {
        let of_columns = (!of_columns.is_empty()).then(|| of_columns.join(" "));
        of_columns.into_iter().chain(self.notes.iter().cloned())
    }

    /// The same with notes below it.
    pub fn notes(self, notes: Vec<String>) -> Table {
        Table { notes, ..self }
    }

    /// Whether a column but the first has no text in any row: nobody needs to see it.
    pub fn is_empty(&self, column: usize) -> bool {
        column > 0 && !self.has_cell(column, |text| !text.is_empty())
    }

    /// Tells whether a column has no figure in any row.
    pub fn is_unknown(&self, column: usize) -> bool {
        !self.has_cell(column, |text| !text.is_empty() && text != NONE)
    }

    fn has_cell(&self, column: usize, is_such: impl Fn(&str) -> bool) -> bool {
        self.rows.iter().any(|row| match row {
            Row::Group(_) => false,
            Row::Cells(cells) | Row::First(cells) => {
                cells.get(column).is_some_and(|cell| is_such(&cell.text))
            }
        })
    }

    /// Adds a row.
    pub fn row<C: Into<Cell>>(&mut self, cells: Vec<C>) {
        self.rows
            .push(Row::Cells(cells.into_iter().map(Into::into).collect()));
    }

    /// Adds a row that is set off from those above.
    pub fn first(&mut self, cells: Vec<Cell>) {
        self.rows.push(Row::First(cells));
    }

    /// Adds a heading.
    pub fn group(&mut self, name: impl Into<String>) {
        self.rows.push(Row::Group(name.into()));
    }
}
