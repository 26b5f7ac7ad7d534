//! Inputs: those of a corpus, and others that are like them, but not quite.

use fastrand::Rng;
use std::fs;
use std::io;
use std::ops::Range;
use std::path::Path;

/// Longer inputs are cut, bytes: they cost time and find nothing more.
const LONGEST: usize = 1 << 20;
/// Changes of one input, at most.
const CHANGES: usize = 8;
/// Bytes put in or taken out by one change, at most; a copied piece may be longer.
const PIECE: usize = 64;
/// Lengths, counts and offsets that parsers get wrong.
const INTERESTING: [u64; 16] = [
    0,
    1,
    7,
    8,
    16,
    0x7f,
    0x80,
    0xff,
    0x7fff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x7fff_ffff_ffff_ffff,
    0x8000_0000_0000_0000,
    u64::MAX,
];

/// The inputs of a target, in the order of their names.
///
/// # Errors
/// Where the folder or a file of it cannot be read.
pub fn corpus(target: &str) -> io::Result<Vec<Vec<u8>>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target);
    let mut files = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<_>>>()?;
    files.sort();
    files.iter().map(fs::read).collect()
}

/// The input with this number, the same whenever it is asked for.
pub fn input(corpus: &[Vec<u8>], seed: u64, number: u64) -> Vec<u8> {
    // Neighbouring numbers give unlike inputs: the generator mixes its seed.
    let mut rng = Rng::with_seed(seed ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let mut data = any(corpus, &mut rng).to_vec();
    for _ in 0..rng.usize(1..=CHANGES) {
        change(&mut data, corpus, &mut rng);
    }
    data.truncate(LONGEST);
    data
}

fn any<'c>(corpus: &'c [Vec<u8>], rng: &mut Rng) -> &'c [u8] {
    rng.choice(corpus).map_or(&[], Vec::as_slice)
}

fn change(data: &mut Vec<u8>, corpus: &[Vec<u8>], rng: &mut Rng) {
    let at = rng.usize(..=data.len());
    match rng.u8(..12) {
        0 => flip(data, rng),
        1 => put(data, at, &[rng.u8(..)]),
        2 => {
            let width = [1, 2, 4, 8][rng.usize(..4)];
            put(data, at, &integer(rng, width));
        }
        3 => {
            let new: Vec<u8> = (0..rng.usize(1..=PIECE)).map(|_| rng.u8(..)).collect();
            data.splice(at..at, new);
        }
        4 => drop(data.drain(piece(data.len(), PIECE, rng))),
        5 => {
            let copied = data[piece(data.len(), PIECE, rng)].repeat(rng.usize(1..=PIECE));
            data.splice(at..at, copied);
        }
        // One input's beginning with another's end.
        6 => {
            let other = any(corpus, rng);
            data.truncate(at);
            data.extend_from_slice(&other[rng.usize(..=other.len())..]);
        }
        7 => {
            let other = any(corpus, rng);
            data.splice(at..at, other[piece(other.len(), other.len(), rng)].to_vec());
        }
        8 => {
            let other = any(corpus, rng);
            put(data, at, &other[piece(other.len(), PIECE, rng)]);
        }
        9 => data.truncate(at),
        10 => number(data, rng),
        // A word of the input in another place.
        _ => {
            let word = data[piece(data.len(), 8, rng)].to_vec();
            put(data, at, &word);
        }
    }
}

fn flip(data: &mut [u8], rng: &mut Rng) {
    let at = rng.usize(..data.len().max(1));
    if let Some(byte) = data.get_mut(at) {
        *byte ^= 1 << rng.u8(..8);
    }
}

/// Writes over what is there, as far as it goes.
fn put(data: &mut [u8], at: usize, with: &[u8]) {
    data.iter_mut()
        .skip(at)
        .zip(with)
        .for_each(|(byte, new)| *byte = *new);
}

fn integer(rng: &mut Rng, width: usize) -> Vec<u8> {
    let bytes = INTERESTING[rng.usize(..INTERESTING.len())].to_le_bytes()[..width].to_vec();
    if rng.bool() {
        bytes
    } else {
        bytes.into_iter().rev().collect()
    }
}

/// A range within `len`, of so many bytes at most.
fn piece(len: usize, most: usize, rng: &mut Rng) -> Range<usize> {
    let from = rng.usize(..=len);
    from..from + rng.usize(..=most.min(len - from))
}

/// Puts another number in the place of one in a text.
fn number(data: &mut Vec<u8>, rng: &mut Rng) {
    let begin = rng.usize(..=data.len());
    let Some(first) = data[begin..]
        .iter()
        .position(u8::is_ascii_digit)
        .map(|at| begin + at)
    else {
        return;
    };
    let digits = data[first..]
        .iter()
        .take_while(|byte| byte.is_ascii_digit())
        .count();
    let value = INTERESTING[rng.usize(..INTERESTING.len())];
    let sign = if rng.bool() { "" } else { "-" };
    data.splice(first..first + digits, format!("{sign}{value}").into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_gives_the_same_input_again_and_another_number_another() {
        let corpus = vec![b"some text 12".to_vec(), vec![0; 40]];
        let nth_input = |number| input(&corpus, 1, number);
        assert_eq!(nth_input(7), nth_input(7));
        let all: std::collections::BTreeSet<Vec<u8>> = (0..1000).map(nth_input).collect();
        assert!(all.len() > 900, "{}", all.len());
    }

    #[test]
    fn an_empty_corpus_gives_inputs_too() {
        assert!((0..100).any(|n| !input(&[], 1, n).is_empty()));
        assert!((0..100).any(|n| !input(&[Vec::new()], 1, n).is_empty()));
    }
}
