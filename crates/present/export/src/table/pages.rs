//! Pages of a column, checked before the library reads them: it allocates what a page claims to need, and decompresses
//! whatever there is. A page begins with a header in Thrift's compact protocol
//! (<https://github.com/apache/parquet-format>, `PageHeader` in parquet.thrift).

use Shape::{Byte, Double, List, Number, Structure, Text, Truth};
use parquet::basic::Compression;
use parquet::errors::ParquetError;
use parquet::file::metadata::ColumnChunkMetaData;
use std::fs::File;
use std::os::unix::fs::FileExt;
use zstd::bulk::Decompressor;

/// Writers make pages of at most some MiB, DuckDB of 100.
const MAX_PAGE: usize = 128 << 20;
/// Of a column in one group of rows.
const MAX_COLUMN: usize = 1 << 30;
/// The description's length and the file's magic number behind it, bytes.
const FOOTER_TAIL: usize = 8;
/// A description, bytes: some KiB for each column of each group.
const MAX_FOOTER: u32 = 64 << 20;
/// It has groups of columns of pages of statistics.
const FOOTER_DEPTH: u32 = 16;
/// Thrift's type of a structure.
const STRUCTURE: u8 = 12;
/// Thrift allows any depth; a header has structures of structures of statistics.
const MAX_DEPTH: u32 = 8;

/// A page's header.
#[derive(Debug, Default, PartialEq, Eq)]
struct Header {
    /// In the file, bytes.
    compressed: usize,
    /// In memory, bytes.
    uncompressed: usize,
    /// Bytes at the page's begin that are never compressed, of a page of the second version.
    levels: usize,
    /// True if the rest is compressed, provided that the column is.
    is_compressed: bool,
}

/// Checks that the description at a file's end claims no list that is longer than itself, and that each field has the type that the
/// format gives it: the library reads a field as that type, whatever the file declares, and allocates what a list claims before it
/// reads it.
pub fn check_footer(file: &File) -> Result<(), ParquetError> {
    let wrong = || ParquetError::General("the description at its end is damaged".to_owned());
    let end = file
        .metadata()
        .map_err(unread)?
        .len()
        .checked_sub(FOOTER_TAIL as u64)
        .ok_or_else(wrong)?;
    let mut tail = [0; FOOTER_TAIL];
    file.read_exact_at(&mut tail, end).map_err(unread)?;
    let [a, b, c, d, magic @ ..] = tail;
    let length = u32::from_le_bytes([a, b, c, d]);
    let start = end
        .checked_sub(length.into())
        .filter(|_| length <= MAX_FOOTER && magic == *b"PAR1")
        .ok_or_else(wrong)?;
    let mut bytes = vec![0; length as usize];
    file.read_exact_at(&mut bytes, start).map_err(unread)?;
    Thrift(&bytes)
        .skip_as(STRUCTURE, &FILE, FOOTER_DEPTH)
        .ok_or_else(wrong)
}

/// Checks that the pages of a column are within its part of the file, and need as much memory as they and the column claim.
pub fn check(
    file: &File,
    column: &ColumnChunkMetaData,
    unpacker: &mut Unpacker,
) -> Result<(), ParquetError> {
    let wrong =
        |what: &str| ParquetError::General(format!("the pages of {} {what}", column.column_path()));
    let start = column
        .dictionary_page_offset()
        .unwrap_or_else(|| column.data_page_offset());
    let size = |size: i64| {
        usize::try_from(size)
            .ok()
            .filter(|size| *size <= MAX_COLUMN)
    };
    let (Ok(start), Some(length), Some(claimed)) = (
        u64::try_from(start),
        size(column.compressed_size()),
        size(column.uncompressed_size()),
    ) else {
        return Err(wrong("have no size that can be"));
    };
    let end = file
        .metadata()
        .ok()
        .and_then(|file| file.len().checked_sub(start))
        .unwrap_or(0);
    if length as u64 > end {
        return Err(wrong("go beyond the file's end"));
    }
    let mut bytes = vec![0; length];
    file.read_exact_at(&mut bytes, start).map_err(unread)?;
    let is_packed = matches!(column.compression(), Compression::ZSTD(_));
    check_pages(&bytes, claimed, is_packed, unpacker).map_err(wrong)
}

fn unread(e: std::io::Error) -> ParquetError {
    ParquetError::External(Box::new(e))
}

/// Checks a column's pages, which claim to need so many bytes; the error says what they do.
fn check_pages(
    mut rest: &[u8],
    claimed: usize,
    is_packed: bool,
    unpacker: &mut Unpacker,
) -> Result<(), &'static str> {
    let mut needed = 0;
    while !rest.is_empty() {
        let mut thrift = Thrift(rest);
        let header = thrift.header().ok_or("are damaged")?;
        let page = thrift.0.get(..header.compressed).ok_or("are cut off")?;
        rest = &thrift.0[header.compressed..];
        needed += header.uncompressed;
        if header.uncompressed > MAX_PAGE || needed > claimed {
            return Err("need more memory than they should");
        }
        if is_packed && header.is_compressed {
            let packed = page.get(header.levels..).ok_or("are cut off")?;
            let size = header.uncompressed.saturating_sub(header.levels);
            if !unpacker.unpacks_to(packed, size) {
                return Err("do not decompress to their size");
            }
        }
    }
    Ok(())
}

/// Decompresses pages to see that they do not need more memory than they claim.
pub struct Unpacker {
    zstd: Decompressor<'static>,
    page: Vec<u8>,
}

impl Unpacker {
    pub fn new() -> std::io::Result<Unpacker> {
        Ok(Unpacker {
            zstd: Decompressor::new()?,
            page: Vec::new(),
        })
    }

    fn unpacks_to(&mut self, packed: &[u8], size: usize) -> bool {
        self.page.clear();
        self.page.reserve_exact(size);
        // What is empty may be no bytes at all.
        if size == 0 && packed.is_empty() {
            return true;
        }
        let unpacked = self.zstd.decompress_to_buffer(packed, &mut self.page);
        if self.page.capacity() > MAX_PAGE / 8 {
            self.page = Vec::new();
        }
        unpacked.is_ok_and(|unpacked| unpacked == size)
    }
}

/// Unread rest of a structure in Thrift's compact protocol.
struct Thrift<'a>(&'a [u8]);

impl Thrift<'_> {
    /// A page's header; `None` where there is none.
    fn header(&mut self) -> Option<Header> {
        let mut header = Header {
            is_compressed: true,
            ..Header::default()
        };
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (2, 5) => header.uncompressed = self.size()?,
                (3, 5) => header.compressed = self.size()?,
                (8, STRUCTURE) => self.second_version(&mut header)?,
                _ => self.skip(kind, MAX_DEPTH)?,
            }
        }
        Some(header)
    }

    fn second_version(&mut self, header: &mut Header) -> Option<()> {
        let mut field = 0;
        while let Some(kind) = self.field(&mut field)? {
            match (field, kind) {
                (5 | 6, 5) => header.levels = header.levels.checked_add(self.size()?)?,
                (7, 2) => header.is_compressed = false,
                _ => self.skip(kind, MAX_DEPTH)?,
            }
        }
        Some(())
    }

    /// The type of the next field, with its number; the inner `None` at the structure's end.
    fn field(&mut self, number: &mut i64) -> Option<Option<u8>> {
        let byte = self.byte()?;
        if byte & 15 == 0 {
            return (byte == 0).then_some(None);
        }
        // As the library reads it: a number beyond 16 bits would be another field there.
        *number = i64::from(match byte >> 4 {
            0 => i16::try_from(self.int()?).ok()?,
            delta => i16::try_from(number.checked_add(i64::from(delta))?).ok()?,
        });
        Some(Some(byte & 15))
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            value |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(value);
            }
        }
        None
    }

    fn int(&mut self) -> Option<i64> {
        let value = self.varint()?;
        Some((value >> 1) as i64 ^ -((value & 1) as i64))
    }

    fn size(&mut self) -> Option<usize> {
        self.int()?.try_into().ok()
    }

    fn advance(&mut self, bytes: u64) -> Option<()> {
        self.0 = self.0.get(usize::try_from(bytes).ok()?..)?;
        Some(())
    }

    /// The type of a list's elements, and how many it claims.
    fn list(&mut self) -> Option<(u8, u64)> {
        let byte = self.byte()?;
        let count = if byte >> 4 == 15 {
            self.varint()?
        } else {
            u64::from(byte >> 4)
        };
        Some((byte & 15, count))
    }

    fn skip(&mut self, kind: u8, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match kind {
            // Of a field the value is in its type.
            1 | 2 => Some(()),
            3 => self.advance(1),
            4..=6 => self.varint().map(drop),
            7 => self.advance(8),
            8 => {
                let length = self.varint()?;
                self.advance(length)
            }
            9 | 10 => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_element(kind, depth))
            }
            STRUCTURE => {
                let mut field = 0;
                while let Some(kind) = self.field(&mut field)? {
                    self.skip(kind, depth)?;
                }
                Some(())
            }
            // No header has a map.
            _ => None,
        }
    }

    /// Skips what the library reads as this shape; `None` where it is of another one.
    fn skip_as(&mut self, kind: u8, shape: &Shape, depth: u32) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        match (shape, kind) {
            (Truth, 1 | 2) | (Byte, 3) | (Number, 4..=6) | (Double, 7) | (Text, 8) => {
                self.skip(kind, 1)
            }
            (List(of), 9) => {
                let (kind, count) = self.list()?;
                (0..count).try_for_each(|_| self.skip_as(kind, of, depth))
            }
            (Structure(fields), STRUCTURE) => {
                let mut number = 0;
                while let Some(kind) = self.field(&mut number)? {
                    match fields.iter().find(|(of, _)| *of == number) {
                        Some((_, shape)) => self.skip_as(kind, shape, depth)?,
                        // The library skips it by the type that the file declares.
                        None => self.skip(kind, depth)?,
                    }
                }
                Some(())
            }
            _ => None,
        }
    }

    /// Of a list a truth value is a byte.
    fn skip_element(&mut self, kind: u8, depth: u32) -> Option<()> {
        if matches!(kind, 1 | 2) {
            self.advance(1)
        } else {
            self.skip(kind, depth)
        }
    }
}

/// The type of a field of a Parquet file's description, as parquet.thrift of <https://github.com/apache/parquet-format>
/// has it: all that have a list somewhere below, and what lies beside these.
enum Shape {
    Truth,
    Byte,
    Number,
    Double,
    Text,
    List(&'static Shape),
    /// By the numbers of its fields; others are new ones, which readers skip.
    Structure(&'static [(i64, Shape)]),
}

const EMPTY: Shape = Structure(&[]);
const KEY_VALUE: Shape = Structure(&[(1, Text), (2, Text)]);
const TIME: Shape = Structure(&[
    (1, Truth),
    (2, Structure(&[(1, EMPTY), (2, EMPTY), (3, EMPTY)])),
]);
const LOGICAL_TYPE: Shape = Structure(&[
    (1, EMPTY),
    (2, EMPTY),
    (3, EMPTY),
    (4, EMPTY),
    (5, Structure(&[(1, Number), (2, Number)])),
    (6, EMPTY),
    (7, TIME),
    (8, TIME),
    (10, Structure(&[(1, Byte), (2, Truth)])),
    (11, EMPTY),
    (12, EMPTY),
    (13, EMPTY),
    (14, EMPTY),
    (15, EMPTY),
    (16, Structure(&[(1, Byte)])),
    (17, Structure(&[(1, Text)])),
    (18, Structure(&[(1, Text), (2, Number)])),
]);
const SCHEMA_ELEMENT: Shape = Structure(&[
    (1, Number),
    (2, Number),
    (3, Number),
    (4, Text),
    (5, Number),
    (6, Number),
    (7, Number),
    (8, Number),
    (9, Number),
    (10, LOGICAL_TYPE),
]);
const STATISTICS: Shape = Structure(&[
    (1, Text),
    (2, Text),
    (3, Number),
    (4, Number),
    (5, Text),
    (6, Text),
    (7, Truth),
    (8, Truth),
]);
const SIZE_STATISTICS: Shape = Structure(&[(1, Number), (2, List(&Number)), (3, List(&Number))]);
const GEOSPATIAL_STATISTICS: Shape = Structure(&[
    (
        1,
        Structure(&[
            (1, Double),
            (2, Double),
            (3, Double),
            (4, Double),
            (5, Double),
            (6, Double),
            (7, Double),
            (8, Double),
        ]),
    ),
    (2, List(&Number)),
]);
const ENCODING_STATISTICS: Shape = Structure(&[(1, Number), (2, Number), (3, Number)]);
const COLUMN: Shape = Structure(&[
    (1, Number),
    (2, List(&Number)),
    (3, List(&Text)),
    (4, Number),
    (5, Number),
    (6, Number),
    (7, Number),
    (8, List(&KEY_VALUE)),
    (9, Number),
    (10, Number),
    (11, Number),
    (12, STATISTICS),
    (13, List(&ENCODING_STATISTICS)),
    (14, Number),
    (15, Number),
    (16, SIZE_STATISTICS),
    (17, GEOSPATIAL_STATISTICS),
]);
const COLUMN_CHUNK: Shape = Structure(&[
    (1, Text),
    (2, Number),
    (3, COLUMN),
    (4, Number),
    (5, Number),
    (6, Number),
    (7, Number),
    (
        8,
        Structure(&[(1, EMPTY), (2, Structure(&[(1, List(&Text)), (2, Text)]))]),
    ),
    (9, Text),
]);
const SORTING_COLUMN: Shape = Structure(&[(1, Number), (2, Truth), (3, Truth)]);
const ROW_GROUP: Shape = Structure(&[
    (1, List(&COLUMN_CHUNK)),
    (2, Number),
    (3, Number),
    (4, List(&SORTING_COLUMN)),
    (5, Number),
    (6, Number),
    (7, Number),
]);
/// Description at a file's end.
static FILE: Shape = Structure(&[
    (1, Number),
    (2, List(&SCHEMA_ELEMENT)),
    (3, Number),
    (4, List(&ROW_GROUP)),
    (5, List(&KEY_VALUE)),
    (6, Text),
    (7, List(&Structure(&[(1, EMPTY)]))),
    (9, Text),
]);

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn headers_of_both_versions() {
        // i32 fields 1, 2 and 3 (0, 150, 100), a structure in field 5 with an i32 and a text, the end.
        let first = [
            0x15, 0, 0x15, 0xac, 2, 0x15, 0xc8, 1, 0x2c, 0x15, 4, 0x18, 2, b'h', b'i', 0, 0, 99,
        ];
        let mut thrift = Thrift(&first);
        let header = Header {
            compressed: 100,
            uncompressed: 150,
            levels: 0,
            is_compressed: true,
        };
        assert_eq!((thrift.header(), thrift.0), (Some(header), &[99][..]));
        // Field 8 with lengths of levels in its fields 5 and 6, and false in 7.
        let second = [
            0x15, 6, 0x15, 20, 0x15, 20, 0x5c, 0x55, 4, 0x15, 6, 0x12, 0, 0,
        ];
        let header = Header {
            compressed: 10,
            uncompressed: 10,
            levels: 5,
            is_compressed: false,
        };
        assert_eq!(Thrift(&second).header(), Some(header));
        assert_eq!(Thrift(&first[..9]).header(), None);
        // A negative size.
        assert_eq!(Thrift(&[0x15, 0, 0x15, 1, 0]).header(), None);
    }

    #[test]
    fn a_description_has_the_types_of_the_format() {
        let read = |bytes: &[u8]| Thrift(bytes).skip_as(STRUCTURE, &FILE, FOOTER_DEPTH);
        // Version 1; a schema of one element, whose name is "a".
        assert_eq!(read(&[0x15, 2, 0x19, 0x1c, 0x48, 1, b'a', 0, 0]), Some(()));
        // The schema as a number, which the library would read as a list of 2^30 elements.
        assert_eq!(
            read(&[0x15, 2, 0x15, 0xfc, 0x80, 0x80, 0x80, 0x80, 0x04, 0]),
            None
        );
        // Its elements as numbers; a field that no version has.
        assert_eq!(read(&[0x15, 2, 0x19, 0x15, 4, 0]), None);
        assert_eq!(read(&[0x15, 2, 0xf5, 2, 0]), Some(()));
    }

    #[test]
    fn a_page_that_decompresses_to_more_than_it_claims_is_refused() {
        let packed = zstd::bulk::compress(&vec![0; 64 << 20], 3).unwrap();
        assert!(packed.len() < 10_000);
        let mut unpacker = Unpacker::new().unwrap();
        assert!(!unpacker.unpacks_to(&packed, 1000));
        assert!(unpacker.unpacks_to(&packed, 64 << 20));
        assert!(!unpacker.unpacks_to(&packed, (64 << 20) + 1));
    }

    proptest! {
        #[test]
        fn any_header_ends(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut thrift = Thrift(&bytes);
            if thrift.header().is_some() {
                prop_assert!(thrift.0.len() < bytes.len());
            }
        }
    }
}
