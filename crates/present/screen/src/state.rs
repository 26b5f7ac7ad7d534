//! State of the screen: the newest sample, the page, the selected VM, the order and the choice of columns.

use std::collections::BTreeMap;
use std::time::Duration;
use vmtax_findings::{GuestExits, TopSample, VmRates};
use vmtax_model::Counter;
use vmtax_report::counter_value;

/// Page that is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum View {
    /// A row for each VM.
    List,
    /// The threads, disks, NICs and exits of the selected one.
    Detail,
    /// The columns, to choose from.
    Fields,
    /// Meaning of the columns and keys.
    Help,
}

/// By what rows are sorted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Cost of the findings, then %RUN.
    Findings,
    Name,
    Column(&'static Counter),
}

/// Choice about a column.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ColumnChoice {
    /// Shown where there is room.
    #[default]
    Automatic,
    /// Shown before those that nobody chose.
    Shown,
    Hidden,
}

/// Reads an interval that a person typed. The error says what is accepted.
pub type ParseInterval = fn(&str) -> Result<Duration, String>;

/// Interval that a person types.
#[derive(Debug, Default)]
pub(crate) struct Prompt {
    pub text: String,
    /// Reason why the text is no interval; empty until Enter.
    pub error: String,
}

/// The state of the screen.
#[derive(Debug)]
pub(crate) struct State {
    pub interval: Duration,
    pub parse_interval: ParseInterval,
    pub sample: Option<TopSample>,
    pub view: View,
    pub order: Order,
    pub reversed: bool,
    /// Choices about columns that are not automatic, by their names.
    pub columns: BTreeMap<&'static str, ColumnChoice>,
    /// The column that is selected among the fields, by its position.
    pub field: usize,
    /// The selected VM; it stays selected where rows move.
    pub selected: Option<i32>,
    /// Lines of a page that are above the screen.
    pub scroll: u16,
    /// The interval that is being typed.
    pub prompt: Option<Prompt>,
    /// The VM whose exits are being traced.
    pub tracing: Option<i32>,
    /// Exits that were traced last, with the PID of their VM.
    pub exits: Option<(i32, GuestExits)>,
}

impl State {
    pub fn new(interval: Duration, parse_interval: ParseInterval) -> State {
        State {
            interval,
            parse_interval,
            sample: None,
            view: View::List,
            order: Order::Findings,
            reversed: false,
            columns: BTreeMap::new(),
            field: 0,
            selected: None,
            scroll: 0,
            prompt: None,
            tracing: None,
            exits: None,
        }
    }

    /// Shows a newer sample.
    pub fn show(&mut self, mut sample: TopSample) {
        for vm in &mut sample.vms {
            if let Some(exits) = vm.traced_exits.take() {
                self.exits = Some((vm.pid, exits));
            }
        }
        // The sample behind a request for a trace holds it, or says why it could not be made.
        self.tracing = None;
        self.sample = Some(sample);
        if self.selected_vm().is_none() {
            self.selected = self.rows().first().map(|vm| vm.pid);
            if self.view == View::Detail {
                self.view = View::List;
            }
        }
    }

    /// The VMs in the order that was chosen.
    pub fn rows(&self) -> Vec<&VmRates> {
        let mut rows: Vec<&VmRates> = self.sample.iter().flat_map(|sample| &sample.vms).collect();
        let largest_first =
            |a: Option<f64>, b: Option<f64>| b.unwrap_or(-1.0).total_cmp(&a.unwrap_or(-1.0));
        let gain = |vm: &VmRates| vm.findings.first().map(|advice| advice.gain);
        rows.sort_by(|a, b| {
            let order = match self.order {
                Order::Findings => {
                    largest_first(gain(a), gain(b)).then(largest_first(a.run, b.run))
                }
                Order::Name => a.label().cmp(&b.label()),
                Order::Column(column) => {
                    largest_first(counter_value(column, a), counter_value(column, b))
                }
            };
            let order = if self.reversed {
                order.reverse()
            } else {
                order
            };
            order.then(a.pid.cmp(&b.pid))
        });
        rows
    }

    pub fn selected_vm(&self) -> Option<&VmRates> {
        let vms = self.sample.iter().flat_map(|sample| &sample.vms);
        self.selected
            .and_then(|pid| vms.into_iter().find(|vm| vm.pid == pid))
    }

    /// Selects another row, so many further down.
    pub fn move_by(&mut self, rows: i64) {
        let pids: Vec<i32> = self.rows().iter().map(|vm| vm.pid).collect();
        let at = pids
            .iter()
            .position(|pid| Some(*pid) == self.selected)
            .unwrap_or(0) as i64;
        let to = (at.saturating_add(rows)).clamp(0, pids.len().saturating_sub(1) as i64);
        self.selected = pids.get(to as usize).copied();
    }

    /// Selects another of the columns, so many further down.
    pub fn move_field_by(&mut self, columns: i64) {
        let last = Counter::columns().count().saturating_sub(1);
        let to = (self.field as i64).saturating_add(columns);
        self.field = to.clamp(0, last as i64) as usize;
    }

    /// The column that is selected among the fields.
    pub fn selected_field(&self) -> Option<&'static Counter> {
        Counter::columns().nth(self.field)
    }

    /// The choice about a column.
    pub fn choice(&self, column: &Counter) -> ColumnChoice {
        let chosen = self.columns.get(column.column);
        chosen.copied().unwrap_or_default()
    }

    /// Makes the next choice about the selected column: automatic, shown, hidden.
    pub fn choose_next(&mut self) {
        let Some(column) = self.selected_field() else {
            return;
        };
        let next = match self.choice(column) {
            ColumnChoice::Automatic => ColumnChoice::Shown,
            ColumnChoice::Shown => ColumnChoice::Hidden,
            ColumnChoice::Hidden => ColumnChoice::Automatic,
        };
        self.columns.insert(column.column, next);
    }

    /// Sorts by the next column, or the one before.
    pub fn sort_further(&mut self, columns: i64) {
        let all = [Order::Findings, Order::Name].into_iter();
        let all: Vec<Order> = all.chain(Counter::columns().map(Order::Column)).collect();
        let at = all.iter().position(|order| *order == self.order);
        let next = (at.unwrap_or(0) as i64 + columns).rem_euclid(all.len() as i64);
        self.order = all.get(next as usize).copied().unwrap_or(Order::Findings);
    }

    /// Sorts by the column of this name.
    pub fn sort_by(&mut self, name: &str) {
        if let Some(column) = Counter::columns().find(|column| column.column == name) {
            self.order = Order::Column(column);
        }
    }

    /// The order, for people.
    pub fn order_name(&self) -> String {
        let by = match self.order {
            Order::Findings => "findings",
            Order::Name => "name",
            Order::Column(column) => column.column,
        };
        let reversed = if self.reversed { ", reversed" } else { "" };
        format!("{by}{reversed}")
    }
}
