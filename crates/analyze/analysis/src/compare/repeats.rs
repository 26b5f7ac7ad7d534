//! A turn's repeats of a workload: one value of them, without what was only warming up.

use crate::overhead::estimate;

/// Returns the number of repeats at the beginning of every turn that are only warming up: in most turns they lie on
/// one side of those behind them (the sign test at 5 %, over all turns of all variants alike, so that no variant is
/// favored). At most half.
pub fn warming_up(turns: &[&[f64]]) -> usize {
    let most = turns.iter().map(|turn| turn.len()).max().unwrap_or(0) / 2;
    (0..most).take_while(|&i| differs(turns, i)).count()
}

fn differs(turns: &[&[f64]], i: usize) -> bool {
    let long_enough = turns.iter().filter(|turn| turn.len() > i + 1);
    let signs: Vec<f64> = long_enough
        .map(|turn| turn[i] - estimate(turn[i + 1..].to_vec()).median)
        .collect();
    let analyses = super::interim::InterimAnalyses::new(signs.len() as u32, signs.len() as u32);
    analyses.p(&signs) <= super::interim::LEVEL
}

/// Returns a turn's value: the median of its repeats after those that were warming up.
pub fn settled(turn: &[f64], warming_up: usize) -> f64 {
    estimate(
        turn.get(warming_up..)
            .filter(|rest| !rest.is_empty())
            .unwrap_or(turn)
            .to_vec(),
    )
    .median
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_repeat_is_cut_where_it_is_slower_in_most_turns() {
        let noise = |i: usize| ((i * 7) % 10) as f64 / 100.0;
        let turns: Vec<[f64; 4]> = (0..16)
            .map(|i| {
                [
                    1.5 + noise(i),
                    1.0 + noise(i + 1),
                    1.0 + noise(i + 3),
                    1.0 + noise(i + 7),
                ]
            })
            .collect();
        let slices: Vec<&[f64]> = turns.iter().map(|t| t.as_slice()).collect();
        assert_eq!(warming_up(&slices), 1);
        assert!(settled(slices[0], 1) < 1.1);
        let even: Vec<&[f64]> = slices.iter().map(|t| &t[1..]).collect();
        assert_eq!(warming_up(&even), 0);
        assert_eq!(warming_up(&[]), 0);
        assert_eq!(warming_up(&[&[1.0][..]; 20]), 0);
        assert_eq!(settled(&[3.0], 1), 3.0);
    }
}
