//! Tables: what they hold, and which columns give way where there is little room.

use vmtax_model::number::NONE;

/// Rows under named columns.
#[derive(Default, Clone)]
pub struct Table {
    /// Description of the table, for people who do not see it.
    pub label: String,
    /// Columns from left to right.
    pub columns: Vec<Column>,
    /// Rows from top to bottom.
    pub rows: Vec<Row>,
    /// Rows that a terminal shows without details; 0: all.
    pub most: usize,
    /// True if columns that do not fit follow in a further table under the same first column.
    pub parts: bool,
    /// True if a row's figures are compared with each other, each row another metric: figures that span too much for one unit get one
    /// for each row.
    pub compares_rows: bool,
    /// Tells whether it names the columns that gave way, where nothing else on the page has what they say.
    pub names_left_out: bool,
    /// Meaning of the signs in the table, and what the table leaves out.
    pub notes: Vec<String>,
}

/// A column. On a terminal columns give way step by step until the table fits: see [`Column::spare`], [`Column::shorten`].
#[derive(Default, Clone)]
pub struct Column {
    /// Head of the column.
    pub name: String,
    /// True if the column has figures, which are aligned to the right.
    pub figures: bool,
    /// The step from which on it is left out; 0: never.
    pub spare: u8,
    /// The step from which on its cells' short forms are used; 0: never.
    pub shorten: u8,
    /// The fewest characters of its cells: wanted, and where nothing else gives way any more. `None`: all of them.
    pub least: Option<(usize, usize)>,
    /// True if text that is too long is cut, not broken into lines.
    pub cut: bool,
    /// Meaning of the signs in the cells: printed below the table where the column is shown.
    pub note: Option<String>,
    /// True if the cells are numbers of samples: rows of one, which may be chance, are shown only with details.
    pub samples: bool,
}

/// Makes a column of words with this head.
pub fn words(name: impl Into<String>) -> Column {
    Column {
        name: name.into(),
        ..Column::default()
    }
}

/// Makes a column of figures with this head.
pub fn figures(name: impl Into<String>) -> Column {
    Column {
        figures: true,
        ..words(name)
    }
}

impl Column {
    /// Returns the column, left out from a step on.
    pub fn spare(self, step: u8) -> Column {
        Column {
            spare: step,
            ..self
        }
    }

    /// Returns the column, with short forms from a step on.
    pub fn shorten(self, step: u8) -> Column {
        Column {
            shorten: step,
            ..self
        }
    }

    /// Returns the column, with the meaning of its signs.
    pub fn noted(self, note: Option<String>) -> Column {
        Column { note, ..self }
    }

    /// Returns the column, as one of the numbers of samples behind the rows.
    pub fn samples(self) -> Column {
        Column {
            samples: true,
            ..self
        }
    }

    /// Returns the column, with cells broken into lines of at least so many characters: wanted, and at the worst.
    pub fn broken(self, wanted: usize, worst: usize) -> Column {
        Column {
            least: Some((wanted, worst)),
            ..self
        }
    }

    /// Returns the column, with cells cut to at least so many characters: wanted, and at the worst.
    pub fn cut(self, wanted: usize, worst: usize) -> Column {
        Column {
            cut: true,
            ..self.broken(wanted, worst)
        }
    }
}

/// Row of a table.
#[derive(Clone)]
pub enum Row {
    /// A heading of the rows below it.
    Group(String),
    /// One cell for each column; missing ones are empty.
    Cells(Vec<Cell>),
    /// One cell for each column, as in [`Row::Cells`], set off from the rows above.
    First(Vec<Cell>),
}

/// Meaning of a cell's colour.
#[derive(Default, Clone, Copy, PartialEq, Eq)]
pub enum Tone {
    /// No colour: no meaning.
    #[default]
    Plain,
    /// A good result.
    Good,
    /// A bad result.
    Bad,
    /// A notable result.
    Warn,
    /// Of little weight.
    Soft,
}

/// Cell of a table.
#[derive(Default, Clone)]
pub struct Cell {
    /// Text of the cell.
    pub text: String,
    /// The form for little room; `None`: the text.
    pub short: Option<String>,
    /// Meaning of the cell's colour.
    pub tone: Tone,
    /// True if the cell stands out.
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

    /// Returns the cell in a colour.
    pub fn tone(self, tone: Tone) -> Cell {
        Cell { tone, ..self }
    }

    /// Returns the cell with a short form.
    pub fn short(self, short: impl Into<String>) -> Cell {
        Cell {
            short: Some(short.into()),
            ..self
        }
    }

    /// Returns the cell with more about it, where the pointer rests.
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
        self.columns(names.map(figures), cells)
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

    /// Returns the finished table.
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

    /// Returns the table as one whose columns follow in a further table where they do not fit.
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

    /// Returns the table with these rows added.
    pub fn rows<C: Into<Cell>>(mut self, rows: impl IntoIterator<Item = Vec<C>>) -> Table {
        rows.into_iter().for_each(|cells| self.row(cells));
        self
    }

    /// Returns the table as one of which a terminal shows so many rows; 0: all.
    pub fn most(self, most: usize) -> Table {
        Table { most, ..self }
    }

    /// Returns the notes below the table: those of its columns together, then those of the whole.
    pub fn all_notes(&self) -> impl Iterator<Item = String> + '_ {
        self.notes_with(
            self.columns
                .iter()
                .filter_map(|column| column.note.as_deref())
                .collect(),
        )
    }

    /// Returns the notes below the table: these notes of columns together, then those of the whole.
    pub fn notes_with<'a>(&'a self, of_columns: Vec<&'a str>) -> impl Iterator<Item = String> + 'a {
        let of_columns = (!of_columns.is_empty()).then(|| of_columns.join(" "));
        of_columns.into_iter().chain(self.notes.iter().cloned())
    }

    /// Returns the table, of which each row compares figures of a metric of its own.
    pub fn of_metrics(self) -> Table {
        Table {
            compares_rows: true,
            ..self
        }
    }

    /// Returns the table with notes below it.
    pub fn notes(self, notes: Vec<String>) -> Table {
        Table { notes, ..self }
    }

    /// Returns true if a column other than the first has no text in any row: nobody needs to see it.
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

    /// Returns the rows that a reader takes in at once: without those of a single sample, and at most [`Table::most`].
    pub fn brief_rows(&self) -> Vec<&Row> {
        let samples = self.columns.iter().position(|column| column.samples);
        let is_single = |row: &Row| match (row, samples) {
            (Row::Cells(cells) | Row::First(cells), Some(column)) => {
                cells.get(column).is_some_and(|cell| cell.text == "1")
            }
            _ => false,
        };
        let is_group = |row: &Row| matches!(row, Row::Group(_));
        let mut rows: Vec<&Row> = self.rows.iter().filter(|row| !is_single(row)).collect();
        if rows.iter().all(|row| is_group(row)) {
            // All that there is.
            rows = self.rows.iter().collect();
        }
        let followed: Vec<bool> = (0..rows.len())
            .map(|i| !is_group(rows[i]) || rows.get(i + 1).is_some_and(|next| !is_group(next)))
            .collect();
        let rows = rows.into_iter().zip(followed);
        let rows = rows.filter_map(|(row, is_shown)| is_shown.then_some(row));
        rows.take(if self.most > 0 { self.most } else { usize::MAX })
            .collect()
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

    /// Adds a row that is set off, and below it a row for each further text of its last column.
    pub fn first_with(&mut self, cells: Vec<Cell>, mut last: impl Iterator<Item = String>) {
        let before = cells.len();
        let text = last.next().unwrap_or_default();
        self.first(cells.into_iter().chain([text.into()]).collect());
        for text in last {
            let mut cells = vec![Cell::default(); before];
            cells.push(text.into());
            self.row(cells);
        }
    }

    /// Adds a heading.
    pub fn group(&mut self, name: impl Into<String>) {
        self.rows.push(Row::Group(name.into()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_of_one_sample_is_a_detail_unless_there_is_no_other() {
        let mut table = Table::new("", vec![words("name"), figures("n").samples()]);
        table.group("first");
        table.row(vec!["a", "1"]);
        assert_eq!(table.brief_rows().len(), 2);
        table.group("second");
        table.row(vec!["b", "2"]);
        table.row(vec!["c", "1"]);
        let brief = table.brief_rows();
        assert!(matches!(brief[..], [Row::Group(_), Row::Cells(_)]));
    }
}
