//! Texts of tables, each once.

use std::collections::HashMap;
use std::sync::Arc;

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
