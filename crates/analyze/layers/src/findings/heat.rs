//! Latency over the run.

use vmtax_model::HeatMap;

/// More columns than this are merged in pairs, and again, as often as it takes.
const MAX_COLUMNS: usize = 120;
const FIRST_COLUMN_NS: f64 = 1e6;
const LOWEST_NS: f64 = 100.0;
/// A fourth of an octave: 19 %.
const FACTOR: f64 = 1.189_207_115_002_721;
/// Up to 27 minutes.
const ROWS: usize = 136;

/// Counts requests by when they began and how long they took, in bounded room.
#[derive(Debug, Clone)]
pub(crate) struct Heat {
    column_ns: f64,
    counts: Vec<[u32; ROWS]>,
}

impl Default for Heat {
    fn default() -> Self {
        Heat {
            column_ns: FIRST_COLUMN_NS,
            counts: Vec::new(),
        }
    }
}

impl Heat {
    /// Counts one: when it began since the first of its trial, and how long it took.
    pub fn add(&mut self, began_ns: f64, took_ns: f64) {
        while began_ns >= self.column_ns * MAX_COLUMNS as f64 {
            let pairs = self.counts.chunks(2);
            let merged = pairs.map(|pair| {
                std::array::from_fn(|row| pair.iter().fold(0, |n, c| c[row].saturating_add(n)))
            });
            self.counts = merged.collect();
            self.column_ns *= 2.0;
        }
        let column = (began_ns / self.column_ns) as usize;
        let row = ((took_ns.max(LOWEST_NS) / LOWEST_NS).ln() / FACTOR.ln()) as usize;
        if self.counts.len() <= column {
            self.counts.resize(column + 1, [0; ROWS]);
        }
        let cell = &mut self.counts[column][row.min(ROWS - 1)];
        *cell = cell.saturating_add(1);
    }

    /// The map, without the rows below and above everything.
    pub fn map(&self) -> HeatMap {
        let used = |row: &usize| self.counts.iter().any(|c| c[*row] > 0);
        let (Some(low), Some(high)) = ((0..ROWS).find(used), (0..ROWS).rev().find(used)) else {
            return HeatMap::default();
        };
        HeatMap {
            column_ns: self.column_ns,
            lowest_ns: LOWEST_NS * FACTOR.powi(low as i32),
            row_factor: FACTOR,
            counts: self.counts.iter().map(|c| c[low..=high].to_vec()).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_double_and_nothing_is_lost() {
        let mut heat = Heat::default();
        for i in 0..10_000 {
            heat.add(f64::from(i) * 1e5, 50_000.0 + f64::from(i % 7) * 40_000.0);
        }
        let map = heat.map();
        assert!(
            map.counts.len() <= MAX_COLUMNS && map.column_ns == FIRST_COLUMN_NS * 16.0,
            "{}",
            map.column_ns
        );
        assert_eq!(map.counts.iter().flatten().sum::<u32>(), 10_000);
        // 62 or 63 full columns of 160 each.
        assert_eq!(map.counts[0].iter().sum::<u32>(), 160);
        assert!(map.lowest_ns <= 50_000.0 && map.lowest_ns * FACTOR > 50_000.0);
        assert_eq!(Heat::default().map(), HeatMap::default());
    }

    #[test]
    fn wild_times_stay_inside() {
        let mut heat = Heat::default();
        for (began, took) in [
            (1e18, 1e18),
            (0.0, 0.0),
            (f64::MAX, f64::INFINITY),
            (f64::NAN, f64::NAN),
        ] {
            heat.add(began.min(1e18), took);
        }
        assert_eq!(heat.map().counts.iter().flatten().sum::<u32>(), 4);
    }
}
