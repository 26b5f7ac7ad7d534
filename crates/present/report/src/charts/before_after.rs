//! Figures without and with changes: two bars each, one below the other, on an axis of their own.

use super::percent;
use super::sketch::{Line, mark, sketch};
use crate::engine::Chart;
use crate::text::Paint;
use maud::{Markup, html};

/// Pairs of figures; the first is the one that decides.
pub struct Pairs(pub Vec<Pair>);

/// A figure without and with changes.
pub struct Pair {
    /// Name of the figure.
    pub name: String,
    /// Both values, in the same unit.
    pub values: [f64; 2],
    /// Both values as texts.
    pub texts: [String; 2],
}

impl Pair {
    /// Both values in percent of the larger.
    fn lengths(&self) -> [f64; 2] {
        let largest = self.values[0].max(self.values[1]).max(f64::MIN_POSITIVE);
        self.values
            .map(|value| (value / largest * 100.0).clamp(0.0, 100.0))
    }
}

/// Bars of a figure, in their order: name and class of the colour.
const BARS: [(&str, &str); 2] = [("without", "native"), ("with", "kvm")];

impl Chart for Pairs {
    fn svg(&self) -> Markup {
        html! {
            p.legend { @for (name, class) in BARS { span.key.(class) { (name) } } }
            div.chart {
                @for pair in &self.0 { (row(pair)) }
            }
        }
    }

    fn text(&self, width: usize, _paint: Paint) -> Option<String> {
        let pair = self.0.first()?;
        let lines = BARS.iter().zip(pair.lengths()).zip(&pair.texts);
        let line = |(((name, _), length), text): ((&(&str, &str), f64), &String)| Line {
            name: (*name).to_owned(),
            figure: text.clone(),
            marks: vec![mark('█', 0.0, length)],
        };
        let lines: Vec<Line> = lines.map(line).collect();
        Some(format!("{}\n{}\n", pair.name, sketch(&lines, width)))
    }
}

fn row(pair: &Pair) -> Markup {
    let [without, with] = &pair.texts;
    html! {
        div.row {
            span.name { (pair.name) }
            svg height="40" role="img" aria-label={ (pair.name) ": " (without) " without, " (with) " with" } {
                @for (i, length) in pair.lengths().into_iter().enumerate() {
                    g.(BARS[i].1).full { rect width=(percent(length.max(0.2))) y=(5 + 18 * i) height="12" rx="2" {} }
                }
            }
            span.figures {
                @for (i, text) in pair.texts.iter().enumerate() { span.(BARS[i].1) { b { (text) } } }
            }
        }
    }
}
