//! The types of the fields of a Parquet file's description, as parquet.thrift of <https://github.com/apache/parquet-format> has
//! them: all that have a list somewhere below, and what lies beside these.

/// The type of a field.
pub(super) enum Shape {
    Truth,
    Byte,
    Number,
    Double,
    Text,
    List(&'static Shape),
    /// By the numbers of its fields; others are new ones, which readers skip.
    Structure(&'static [(i64, Shape)]),
}

use Shape::{Byte, Double, List, Number, Structure, Text, Truth};

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
pub(super) static FILE: Shape = Structure(&[
    (1, Number),
    (2, List(&SCHEMA_ELEMENT)),
    (3, Number),
    (4, List(&ROW_GROUP)),
    (5, List(&KEY_VALUE)),
    (6, Text),
    (7, List(&Structure(&[(1, EMPTY)]))),
    (9, Text),
]);
