//! The laws and the rungs in figures.

use super::Page;
use crate::growth::words;
use crate::number::{NONE, count, nanoseconds};
use maud::{Markup, html as markup};

pub fn tables(page: &Page) -> Markup {
    markup! {
        section {
            h2 { "In figures" }
            div.scroll tabindex="0" role="region" aria-label="Laws" { (laws(page)) }
            details {
                summary { "Every size" }
                div.scroll tabindex="0" role="region" aria-label="Costs by size" { (rungs(page)) }
            }
        }
    }
}

fn laws(page: &Page) -> Markup {
    markup! {
        table.taxes {
            caption.hidden { "The law of each cost" }
            thead { tr {
                th scope="col" { "cost of" } th scope="col" { "where" } th scope="col" { "law" }
                @for name in ["step", "costs", "95 % interval", "top : bottom", "p"] { th.number scope="col" { (name) } }
            } }
            tbody {
                @for g in &page.findings.growths {
                    tr {
                        th.metric scope="row" { (words::what(g)) }
                        td { span.key.(page.class(g)) { (words::place(g)) } }
                        td.median { (words::law(g)) }
                        td.number { (g.law.map_or(NONE, |law| law.step())) }
                        td.number.median { (words::one_more(g)) }
                        td.number { (words::one_more_range(g)) }
                        td.number { (words::change(g)) }
                        td.number { (format!("{:.3}", g.p)) }
                    }
                }
            }
        }
    }
}

fn rungs(page: &Page) -> Markup {
    markup! {
        table {
            caption.hidden { "Median cost at each size, with its 95 % interval" }
            thead { tr {
                th scope="col" { "cost of" } th scope="col" { "where" } th.number scope="col" { (page.findings.option) }
                @for name in ["rounds", "median", "95 % interval"] { th.number scope="col" { (name) } }
            } }
            tbody {
                @for g in &page.findings.growths {
                    @for rung in &g.rungs {
                        tr {
                            th scope="row" { (words::what(g)) }
                            td { span.key.(page.class(g)) { (words::place(g)) } }
                            td.number { (count(rung.size)) }
                            td.number { (rung.rounds.len()) }
                            td.number { (rung.ns.map_or(NONE.to_owned(), |e| nanoseconds(e.median))) }
                            td.number { (rung.ns.and_then(|e| e.interval).map_or(NONE.to_owned(), |i| format!("{} to {}", nanoseconds(i.low), nanoseconds(i.high)))) }
                        }
                    }
                }
            }
        }
    }
}
