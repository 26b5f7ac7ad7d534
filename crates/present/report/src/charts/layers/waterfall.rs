//! A single request as a waterfall: who works when, then each segment on a line of its own, so that no label meets another.

use super::{class, segment, veil};
use crate::charts::axis::{Axis, percent};
use crate::engine::Chart;
use crate::view::layers::{self as view, Scale};
use maud::{Markup, html};
use vmtax_model::{Layer, Span, Waterfall};

/// Waterfall of one request.
pub struct Falls<'a>(pub &'a Waterfall);

impl Chart for Falls<'_> {
    fn svg(&self) -> Markup {
        let w = self.0;
        let end = w
            .spans
            .iter()
            .map(|s| s.end_ns)
            .chain([w.total_ns])
            .filter(|v| v.is_finite())
            .fold(0.0, f64::max);
        let axis = Axis::from_zero(end);
        let ticks = axis.ticks(6);
        let scale = Scale::of(w.total_ns);
        let mut threads: Vec<&str> = Vec::new();
        for span in &w.spans {
            if !threads.contains(&lane(span)) {
                threads.push(lane(span));
            }
        }
        html! {
            div.waterfall { div.chart {
                div.group { span {} div { (axis.labels(&ticks, |t| scale.tick(t))) } span {} }
                @for thread in &threads {
                    div.row.lane-of {
                        span.name { (thread) }
                        svg height="18" role="img" aria-label={ "When " (thread) " has the request" } {
                            (axis.grid(&ticks))
                            @for span in w.spans.iter().filter(|s| lane(s) == *thread) { (bar(span, &axis, &scale)) }
                        }
                        span {}
                    }
                }
                div.apart {}
                @for span in &w.spans {
                    div.row.stretch {
                        span.name { (segment(span.layer, &span.label, span.state)) }
                        svg height="18" role="img" aria-label={ (view::name(span.layer, &span.label, span.state)) ": from " (scale.text(span.begin_ns)) " to " (scale.text(span.end_ns)) } {
                            (axis.grid(&ticks))
                            (bar(span, &axis, &scale))
                        }
                        span.time { b { (scale.text(span.end_ns - span.begin_ns)) } " " span.range { (lane(span)) } }
                    }
                }
            }
            }
        }
    }
}

/// Who has the request: the disk is nobody's thread.
fn lane(span: &Span) -> &str {
    if span.layer == Layer::Device {
        Layer::Device.label()
    } else {
        &span.thread
    }
}

fn bar(span: &Span, axis: &Axis, scale: &Scale) -> Markup {
    let (begin, end) = (axis.at(span.begin_ns), axis.at(span.end_ns));
    let (x, width) = (percent(begin.min(99.75)), percent((end - begin).max(0.25)));
    html! {
        g.(class(span.layer)) {
            title { (view::name(span.layer, &span.label, span.state)) ", " (span.thread) ": " (scale.text(span.end_ns - span.begin_ns)) " from " (scale.text(span.begin_ns)) }
            rect x=(x) width=(width) y="2" height="14" rx="1.5" {}
            (veil(span.state, &x, &width, "2", "14"))
        }
    }
}
