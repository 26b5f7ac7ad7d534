//! Single requests as pictures.

use crate::request::JoinedRequest;
use crate::trial::common_path::{label, layer};
use crate::trial::joined_trial::JoinedTrial;
use vmtax_model::{Checkpoint, Span, Waterfall};

/// A request that may be drawn.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Candidate {
    pub which: &'static str,
    pub total_ns: f64,
    pub spans: Vec<Span>,
}

impl Candidate {
    pub fn waterfall(&self) -> Waterfall {
        Waterfall {
            which: self.which.to_owned(),
            total_ns: self.total_ns,
            spans: self.spans.clone(),
        }
    }
}

/// From each trial the requests at its own quantiles; which of them is drawn shows when all trials are in.
#[derive(Debug, Clone, Default)]
pub(crate) struct WaterfallCandidates(Vec<Candidate>);

impl WaterfallCandidates {
    pub fn add(&mut self, trial: &JoinedTrial) {
        let mut order: Vec<u32> = (0..).take(trial.requests.len()).collect();
        order.sort_unstable_by_key(|i| trial.requests[*i as usize].total());
        for (which, quantile) in [("median", 0.5), ("p99", 0.99)] {
            let rank = (quantile * order.len() as f64).ceil() as usize;
            if let Some(i) = order.get(rank.saturating_sub(1)) {
                let request = &trial.requests[*i as usize];
                self.0.push(Candidate {
                    which,
                    total_ns: trial.ns(request.total()),
                    spans: spans(trial, request),
                });
            }
        }
    }

    /// The one of a kind that is nearest to a time.
    pub fn nearest(&self, which: &str, ns: f64) -> Option<&Candidate> {
        let of_kind = self.0.iter().filter(|c| c.which == which);
        of_kind.min_by(|a, b| (a.total_ns - ns).abs().total_cmp(&(b.total_ns - ns).abs()))
    }
}

/// The segments of a request as they follow each other.
fn spans(trial: &JoinedTrial, request: &JoinedRequest) -> Vec<Span> {
    let mut at = request.first();
    let spans = request.segments.iter().map(|segment| {
        let begin = at;
        at += segment.ticks;
        let from = request
            .checkpoints()
            .take_while(|(s, _)| *s < segment.to)
            .last()
            .map_or(Checkpoint::Begin, |(s, _)| s);
        Span {
            layer: layer(from, segment.to),
            state: segment.state,
            label: label(from, segment.to),
            thread: trial.name(segment.who),
            begin_ns: trial.ns(begin - request.begin()),
            end_ns: trial.ns(at - request.begin()),
        }
    });
    spans.collect()
}
