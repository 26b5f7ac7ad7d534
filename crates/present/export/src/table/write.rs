//! A flat Parquet table, written row group by row group with the format's column writers.

use crate::ExportError;
use parquet::basic::{
    Compression, Encoding, LogicalType, Repetition, TimeUnit, Type as Physical, ZstdLevel,
};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, DoubleType, Int32Type, Int64Type};
use parquet::errors::{ParquetError, Result};
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{
    SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter,
};
use parquet::schema::types::{ColumnPath, Type};
use std::fs::File;
use std::io::Write;
use std::sync::Arc;

/// Rows are held back until there are this many: readers skip, and compress, by row group.
const ROW_GROUP: usize = 1 << 16;

/// A column's values, as far as they are not written yet.
#[derive(Debug)]
pub enum Column {
    /// A count or a number.
    Int(Vec<i32>),
    /// A time or a place.
    Long(Vec<i64>),
    /// Times or places, some of which may be missing.
    Maybe(Vec<Option<i64>>),
    /// Texts of the column.
    Text(Vec<ByteArray>),
    /// Texts, some of which may be missing.
    MaybeText(Vec<Option<ByteArray>>),
    /// Figures of the column.
    Float(Vec<f64>),
    /// Figures, some of which may be missing.
    MaybeFloat(Vec<Option<f64>>),
    /// When, microseconds since 1970, UTC, where it is known.
    MaybeTime(Vec<Option<i64>>),
}

/// A value of a row.
pub enum Cell {
    /// Value for [`Column::Int`].
    Int(u32),
    /// Value for [`Column::Long`].
    Long(u64),
    /// Value for [`Column::Maybe`].
    Maybe(Option<u64>),
    /// Value for [`Column::Text`].
    Text(ByteArray),
    /// Value for [`Column::MaybeText`].
    MaybeText(Option<ByteArray>),
    /// Value for [`Column::Float`].
    Float(f64),
    /// Value for [`Column::MaybeFloat`].
    MaybeFloat(Option<f64>),
    /// Value for [`Column::MaybeTime`].
    MaybeTime(Option<i64>),
}

impl Column {
    fn physical(&self) -> Physical {
        match self {
            Column::Int(_) => Physical::INT32,
            Column::Long(_) | Column::Maybe(_) | Column::MaybeTime(_) => Physical::INT64,
            Column::Text(_) | Column::MaybeText(_) => Physical::BYTE_ARRAY,
            Column::Float(_) | Column::MaybeFloat(_) => Physical::DOUBLE,
        }
    }

    fn field(&self, name: &str) -> Result<Arc<Type>> {
        let repetition = match self {
            Column::Maybe(_)
            | Column::MaybeText(_)
            | Column::MaybeFloat(_)
            | Column::MaybeTime(_) => Repetition::OPTIONAL,
            _ => Repetition::REQUIRED,
        };
        let logical = match self {
            Column::Text(_) | Column::MaybeText(_) => Some(LogicalType::String),
            Column::MaybeTime(_) => Some(LogicalType::Timestamp {
                is_adjusted_to_u_t_c: true,
                unit: TimeUnit::MICROS,
            }),
            _ => None,
        };
        let builder =
            Type::primitive_type_builder(name, self.physical()).with_repetition(repetition);
        builder.with_logical_type(logical).build().map(Arc::new)
    }

    fn push(&mut self, cell: Cell) -> Result<()> {
        let large = |v: u64| general(format!("{v} is too large"));
        let long = |v: u64| i64::try_from(v).map_err(|_| large(v));
        match (self, cell) {
            (Column::Int(all), Cell::Int(v)) => {
                all.push(i32::try_from(v).map_err(|_| large(v.into()))?)
            }
            (Column::Long(all), Cell::Long(v)) => all.push(long(v)?),
            (Column::Maybe(all), Cell::Maybe(v)) => all.push(v.map(long).transpose()?),
            (Column::Text(all), Cell::Text(v)) => all.push(v),
            (Column::MaybeText(all), Cell::MaybeText(v)) => all.push(v),
            (Column::Float(all), Cell::Float(v)) => all.push(v),
            (Column::MaybeFloat(all), Cell::MaybeFloat(v)) => all.push(v),
            (Column::MaybeTime(all), Cell::MaybeTime(v)) => all.push(v),
            _ => {
                return Err(general("a value is not of its column's type"));
            }
        }
        Ok(())
    }

    /// Writes the values and forgets them.
    fn write<W: Write + Send>(
        &mut self,
        group: &mut SerializedRowGroupWriter<'_, W>,
    ) -> Result<()> {
        let Some(mut writer) = group.next_column()? else {
            return Err(general("more columns than the schema has"));
        };
        match self {
            Column::Int(all) => write_all::<Int32Type>(&mut writer, all)?,
            Column::Long(all) => write_all::<Int64Type>(&mut writer, all)?,
            Column::Text(all) => write_all::<ByteArrayType>(&mut writer, all)?,
            Column::Float(all) => write_all::<DoubleType>(&mut writer, all)?,
            Column::Maybe(all) | Column::MaybeTime(all) => {
                write_optional::<Int64Type>(&mut writer, all)?
            }
            Column::MaybeText(all) => write_optional::<ByteArrayType>(&mut writer, all)?,
            Column::MaybeFloat(all) => write_optional::<DoubleType>(&mut writer, all)?,
        };
        writer.close()
    }
}

fn general(what: impl Into<String>) -> ParquetError {
    ParquetError::General(what.into())
}

/// Writes the values and empties the list, whose memory the next ones take.
fn write_all<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    all: &mut Vec<T::T>,
) -> Result<usize> {
    let written = writer.typed::<T>().write_batch(all, None, None)?;
    all.clear();
    Ok(written)
}

fn write_optional<T: DataType>(
    writer: &mut SerializedColumnWriter<'_>,
    all: &mut Vec<Option<T::T>>,
) -> Result<usize> {
    let levels: Vec<i16> = all.iter().map(|v| i16::from(v.is_some())).collect();
    let values: Vec<T::T> = all.drain(..).flatten().collect();
    writer
        .typed::<T>()
        .write_batch(&values, Some(&levels), None)
}

/// A column of text.
pub fn text(name: &str) -> (&str, Column) {
    (name, Column::Text(vec![]))
}

/// A table being written.
pub struct Table<W: Write + Send> {
    what: &'static str,
    file: SerializedFileWriter<W>,
    columns: Vec<Column>,
    rows: usize,
}

impl<W: Write + Send> Table<W> {
    /// A table of these columns; `what` it is, for errors.
    pub fn new(
        what: &'static str,
        out: W,
        columns: Vec<(&str, Column)>,
    ) -> Result<Self, ExportError> {
        // The library panics where it cannot; once this went well it can.
        getrandom::fill(&mut [0]).map_err(|source| ExportError::Random { what, source })?;
        Self::begin(what, out, columns).map_err(|source| ExportError::Parquet { what, source })
    }

    fn begin(what: &'static str, out: W, columns: Vec<(&str, Column)>) -> Result<Self> {
        let fields = columns
            .iter()
            .map(|(name, column)| column.field(name))
            .collect::<Result<Vec<_>>>()?;
        let schema = Type::group_type_builder(what).with_fields(fields).build()?;
        let mut properties = WriterProperties::builder()
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_compression(Compression::ZSTD(ZstdLevel::default()))
            .set_created_by(concat!("vmtax ", env!("CARGO_PKG_VERSION")).to_owned())
            .set_key_value_metadata(Some(vec![KeyValue::new(
                "vmtax.schema".to_owned(),
                Some(vmtax_model::SCHEMA.to_string()),
            )]));
        for (name, column) in &columns {
            let path = ColumnPath::from(*name);
            properties = match column.physical() {
                // Times and counts seldom repeat: looking each up in a dictionary takes longer than all the rest.
                Physical::INT32 | Physical::INT64 => properties
                    .set_column_dictionary_enabled(path.clone(), false)
                    .set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
                // The dictionary says which texts there are; comparing each takes long.
                Physical::BYTE_ARRAY => {
                    properties.set_column_statistics_enabled(path, EnabledStatistics::None)
                }
                _ => properties,
            };
        }
        let file = SerializedFileWriter::new(out, Arc::new(schema), Arc::new(properties.build()))?;
        Ok(Table {
            what,
            file,
            columns: columns.into_iter().map(|(_, column)| column).collect(),
            rows: 0,
        })
    }

    /// Adds a row: a cell for each column, in their order.
    pub fn push(&mut self, row: impl IntoIterator<Item = Cell>) -> Result<(), ExportError> {
        let what = self.what;
        let pushed = self.push_row(row);
        pushed.map_err(|source| ExportError::Parquet { what, source })
    }

    fn push_row(&mut self, row: impl IntoIterator<Item = Cell>) -> Result<()> {
        let mut cells = row.into_iter();
        for column in &mut self.columns {
            let cell = cells.next().ok_or_else(|| general("a row is too short"))?;
            column.push(cell)?;
        }
        self.rows += 1;
        if self.rows == ROW_GROUP {
            self.flush()
        } else {
            Ok(())
        }
    }

    fn flush(&mut self) -> Result<()> {
        self.rows = 0;
        let mut group = self.file.next_row_group()?;
        for column in &mut self.columns {
            column.write(&mut group)?;
        }
        group.close().map(drop)
    }

    /// Writes what is left and the footer, without which nobody can read the file.
    pub fn finish(mut self) -> Result<(), ExportError> {
        let rest = if self.rows > 0 { self.flush() } else { Ok(()) };
        let what = self.what;
        rest.and_then(|()| self.file.close().map(drop))
            .map_err(|source| ExportError::Parquet { what, source })
    }
}

/// Columns, and rows with a cell for each.
pub struct Rows {
    columns: Vec<(&'static str, Column)>,
    rows: Vec<Vec<Cell>>,
}

impl Rows {
    /// Makes a table of these columns.
    pub fn new(columns: Vec<(&'static str, Column)>) -> Rows {
        Rows {
            columns,
            rows: Vec::new(),
        }
    }

    /// Adds a row: a cell for each column, in their order.
    pub fn push(&mut self, row: Vec<Cell>) {
        self.rows.push(row);
    }

    /// Returns true if there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Writes them as Parquet; `what` they are, for errors and readers.
    ///
    /// # Errors
    /// [`ExportError`] if the file cannot be written, or a cell is not of its column's type.
    pub fn write(self, what: &'static str, file: File) -> Result<(), ExportError> {
        let mut table = Table::new(what, file, self.columns)?;
        self.rows.into_iter().try_for_each(|row| table.push(row))?;
        table.finish()
    }
}

/// A cell of text.
pub fn words(text: &str) -> Cell {
    Cell::Text(ByteArray::from(text))
}

/// A cell of text that may be missing.
pub fn maybe(text: Option<&str>) -> Cell {
    Cell::MaybeText(text.map(ByteArray::from))
}
