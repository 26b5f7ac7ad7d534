//! Columns of a Parquet file, whoever wrote it: found by name, read as far as their types make it possible.

use super::pages::{self, Unpacker};
use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::DataType;
use parquet::errors::ParquetError;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};
use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::Arc;

/// More rows or bytes in one group are no table of figures or facts: it is read at once. Writers make groups of 10^5 to 10^6 rows.
const MAX_ROWS: usize = 4 << 20;
const MAX_BYTES: i64 = 1 << 30;
/// More rows than a group may have must take room in the file. Real ones are not so small by a factor of ten.
const MAX_ROWS_PER_BYTE: u64 = 32;

/// Why a file is left out.
#[derive(Debug, thiserror::Error)]
pub enum Problem {
    /// The system does not give its content.
    #[error("{0}")]
    Unreadable(#[from] io::Error),
    /// It is no Parquet, or claims what cannot be.
    #[error("{0}")]
    Damaged(#[from] ParquetError),
    /// The library's answer to some damaged files.
    #[error("the library cannot read it")]
    Panic,
    /// It is another table.
    #[error("no column {0} of the documented type")]
    Column(&'static str),
}

/// Opens a file and reads its groups of rows, one after the other. What is allocated for it is bounded, whatever it claims.
///
/// # Errors
/// [`Problem`] of the file, and of `read`: then it was called for the groups before.
pub fn for_each_group(
    path: &Path,
    read: impl FnMut(&mut Group) -> Result<(), Problem>,
) -> Result<(), Problem> {
    catch_unwind(AssertUnwindSafe(|| groups(path, read)))
        .unwrap_or(Err(Problem::Panic))
        .map_err(of_system)
}

/// Tells a read that the system refused from damage: the library reports both as its own error.
fn of_system(problem: Problem) -> Problem {
    match problem {
        Problem::Damaged(ParquetError::External(source)) => match source.downcast::<io::Error>() {
            Ok(error) if error.raw_os_error().is_some() => Problem::Unreadable(*error),
            Ok(error) => Problem::Damaged(ParquetError::External(error)),
            Err(source) => Problem::Damaged(ParquetError::External(source)),
        },
        other => other,
    }
}

fn groups(
    path: &Path,
    mut read: impl FnMut(&mut Group) -> Result<(), Problem>,
) -> Result<(), Problem> {
    let file = File::open(path)?;
    let most = (file.metadata()?.len() * MAX_ROWS_PER_BYTE).max(MAX_ROWS as u64);
    let mut unpacker = Unpacker::new()?;
    pages::check_footer(&file)?;
    let parquet = SerializedFileReader::new(file.try_clone()?)?;
    let metadata = parquet.metadata();
    let mut all_rows = 0;
    for i in 0..metadata.num_row_groups() {
        let of_group = metadata.row_group(i);
        let rows = usize::try_from(of_group.num_rows()).unwrap_or(usize::MAX);
        if rows > MAX_ROWS || !(0..MAX_BYTES).contains(&of_group.total_byte_size()) {
            return Err(damaged(format!(
                "a group of {rows} rows is too large, write it in groups of at most {MAX_ROWS}"
            )));
        }
        all_rows += rows as u64;
        if all_rows > most {
            return Err(damaged(format!(
                "{all_rows} rows are more than a file of its size has"
            )));
        }
        read(&mut Group {
            file: &file,
            reader: parquet.get_row_group(i)?,
            unpacker: &mut unpacker,
            rows,
        })?;
    }
    Ok(())
}

fn damaged(what: String) -> Problem {
    Problem::Damaged(ParquetError::General(what))
}

/// Rows of a file.
pub struct Group<'a> {
    file: &'a File,
    reader: Box<dyn RowGroupReader + 'a>,
    unpacker: &'a mut Unpacker,
    /// Number of rows.
    pub rows: usize,
}

impl Group<'_> {
    fn column(&mut self, name: &str) -> Option<Result<ColumnReader, ParquetError>> {
        let metadata = self.reader.metadata();
        let at = metadata
            .schema_descr()
            .columns()
            .iter()
            .position(|column| column.path().parts() == [name])?;
        let checked = pages::check(self.file, metadata.column(at), self.unpacker);
        Some(checked.and_then(|()| self.reader.get_column_reader(at)))
    }

    /// A column of text by numbers, the empty text where it is null; `None` where there is no such column.
    ///
    /// # Errors
    /// [`Problem`] if the column is damaged or of another type.
    pub fn texts(
        &mut self,
        name: &'static str,
        texts: &mut Texts,
    ) -> Result<Option<Vec<u32>>, Problem> {
        let Some(column) = self.column(name).transpose()? else {
            return Ok(None);
        };
        let ColumnReader::ByteArrayColumnReader(column) = column else {
            return Err(Problem::Column(name));
        };
        let values = self.values(column)?;
        let empty = texts.number("");
        let mut before: Option<(&[u8], u32)> = None;
        let numbers = values.iter().map(|value| {
            let Some(value) = value else { return empty };
            let bytes = value.data();
            match before {
                Some((same, number)) if same == bytes => number,
                _ => {
                    let number = texts.number(&String::from_utf8_lossy(bytes));
                    before = Some((bytes, number));
                    number
                }
            }
        });
        Ok(Some(numbers.collect()))
    }

    /// Reads a column of texts that must be there, as numbers of the texts.
    ///
    /// # Errors
    /// As [`Group::texts`], and if there is no such column.
    pub fn needed_texts(
        &mut self,
        name: &'static str,
        texts: &mut Texts,
    ) -> Result<Vec<u32>, Problem> {
        self.texts(name, texts)?.ok_or(Problem::Column(name))
    }

    /// A column of whole numbers, where there is one.
    ///
    /// # Errors
    /// As [`Group::texts`].
    pub fn longs(&mut self, name: &'static str) -> Result<Option<Vec<Option<i64>>>, Problem> {
        let Some(column) = self.column(name).transpose()? else {
            return Ok(None);
        };
        let longs = match column {
            ColumnReader::Int32ColumnReader(column) => {
                let values = self.values(column)?.into_iter();
                values.map(|v| v.map(i64::from)).collect()
            }
            ColumnReader::Int64ColumnReader(column) => self.values(column)?,
            _ => return Err(Problem::Column(name)),
        };
        Ok(Some(longs))
    }

    /// A column of figures that must be there.
    ///
    /// # Errors
    /// As [`Group::needed_texts`].
    pub fn floats(&mut self, name: &'static str) -> Result<Vec<Option<f64>>, Problem> {
        match self.column(name).ok_or(Problem::Column(name))?? {
            ColumnReader::DoubleColumnReader(column) => self.values(column),
            ColumnReader::FloatColumnReader(column) => {
                let values = self.values(column)?.into_iter();
                Ok(values.map(|v| v.map(f64::from)).collect())
            }
            _ => Err(Problem::Column(name)),
        }
    }

    fn values<T: DataType>(
        &self,
        mut column: ColumnReaderImpl<T>,
    ) -> Result<Vec<Option<T::T>>, Problem> {
        let (mut levels, mut values) = (Vec::new(), Vec::new());
        let (rows, _, _) = column.read_records(self.rows, Some(&mut levels), None, &mut values)?;
        if rows != self.rows {
            let of = self.rows;
            return Err(damaged(format!("a column ends at row {rows} of {of}")));
        }
        // Without levels nothing is null.
        if levels.is_empty() {
            return Ok(values.into_iter().map(Some).collect());
        }
        let most = levels.iter().max().copied().unwrap_or_default().max(1);
        let mut values = values.into_iter();
        Ok(levels
            .into_iter()
            .map(|level| if level == most { values.next() } else { None })
            .collect())
    }
}

/// Texts by number. A dataset has a million cells of text and a few thousand texts.
#[derive(Default)]
pub struct Texts {
    all: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u32>,
}

impl Texts {
    /// Returns the number of a text, a new one where it is not known.
    pub fn number(&mut self, text: &str) -> u32 {
        if let Some(&number) = self.numbers.get(text) {
            return number;
        }
        let text: Arc<str> = text.into();
        let number = self.all.len() as u32;
        self.all.push(Arc::clone(&text));
        self.numbers.insert(text, number);
        number
    }

    /// Returns the text of a number.
    pub fn get(&self, number: u32) -> &str {
        &self.all[number as usize]
    }

    /// Returns the text of a number, to be kept.
    pub fn shared(&self, number: u32) -> Arc<str> {
        Arc::clone(&self.all[number as usize])
    }

    /// Takes in the texts of another: of each of its numbers this one's.
    pub fn merge(&mut self, other: &Texts) -> Vec<u32> {
        other.all.iter().map(|text| self.number(text)).collect()
    }
}
