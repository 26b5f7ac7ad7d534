//! Text of a guest's console: the failure of its kernel that it has last. The guest writes it, so it may say anything.

use vmtax_model::FailureKind;

/// Longest line that is kept, characters.
const MAX_LINE: usize = 160;
/// The kernel's first line of each boot.
const BANNER: &str = "Linux version ";
const PANIC: &str = "Kernel panic - not syncing";
/// After this line a kernel that panicked prints only that it reboots.
const END_OF_PANIC: &str = "---[ end Kernel panic";
const REBOOTS: &str = "Rebooting in ";
/// Prefixes of the kernel's messages on a lockup or a stall.
const PREFIXES: [&str; 3] = ["NMI watchdog: ", "watchdog: ", "rcu: "];
/// The second line of an oops.
const OOPS: &str = "Oops: ";
/// First lines of an oops, as `arch/x86/mm/fault.c` and `arch/x86/kernel/traps.c` have them.
const BUGS: [&str; 4] = [
    "BUG: unable to handle ",
    "BUG: kernel NULL pointer dereference",
    "general protection fault",
    "kernel BUG at ",
];

/// A failure with the kernel's line about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FailureLine {
    pub kind: FailureKind,
    /// Printable, without the kernel's time.
    pub line: String,
}

/// The failure that a console's text has last, of the last boot in it: none comes before a later `Linux version`. A panic counts
/// only while nothing else but the kernel that panicked has printed.
pub(super) fn last_failure(text: &[u8]) -> Option<FailureLine> {
    let text = String::from_utf8_lossy(text);
    let mut last = Boot::default();
    text.split(['\n', '\r'])
        .for_each(|line| last.read(&printable(line)));
    last.failure
}

/// State of the text of the current boot.
#[derive(Debug, Default)]
struct Boot {
    failure: Option<FailureLine>,
    /// The kernel's time of a panic, s.
    panicked: Option<f64>,
    /// The panic's last line was printed.
    is_over: bool,
}

impl Boot {
    fn read(&mut self, line: &str) {
        let (time, message) = message(line);
        let has_panicked = self
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::Panic);
        // Another boot without its banner (`quiet`): its clock begins again, or something else than the kernel prints.
        let is_earlier = time
            .zip(self.panicked)
            .is_some_and(|(time, panicked)| time < panicked);
        let is_foreign =
            self.is_over && time.is_none() && !message.is_empty() && !message.starts_with(REBOOTS);
        if line.contains(BANNER) || (has_panicked && (is_earlier || is_foreign)) {
            *self = Boot::default();
            return self.failure_in(time, message);
        }
        if !has_panicked {
            self.failure_in(time, message);
        }
        self.is_over |= line.contains(END_OF_PANIC);
    }

    /// Keeps the failure that a message reports.
    fn failure_in(&mut self, time: Option<f64>, message: &str) {
        if let Some((_, after)) = message.split_once(PANIC) {
            let after = after.strip_suffix(" ]---").unwrap_or(after);
            (self.failure, self.panicked) = (
                Some(line(FailureKind::Panic, &format!("{PANIC}{after}"))),
                time,
            );
            return;
        }
        let bare = PREFIXES.iter().fold(message, |rest, prefix| {
            rest.strip_prefix(prefix).unwrap_or(rest)
        });
        let is_stall = bare.starts_with("INFO: rcu_") && bare.contains("detected stall");
        let is_lockup = bare.starts_with("BUG: soft lockup - CPU")
            || bare.contains("detected hard LOCKUP on cpu");
        let is_bug = BUGS.iter().any(|start| bare.starts_with(start));
        let is_known = self
            .failure
            .as_ref()
            .is_some_and(|failure| failure.kind == FailureKind::Oops);
        if is_stall || is_lockup {
            self.failure = Some(line(FailureKind::Lockup, message));
        } else if is_bug || (bare.starts_with(OOPS) && !is_known) {
            self.failure = Some(line(FailureKind::Oops, message));
        }
    }
}

fn line(kind: FailureKind, text: &str) -> FailureLine {
    FailureLine {
        kind,
        line: text.trim().chars().take(MAX_LINE).collect(),
    }
}

/// A line without control characters and escape sequences of a terminal.
fn printable(line: &str) -> String {
    let mut text = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == '\u{1b}' && letters.next_if_eq(&'[').is_some() {
            // Parameters, then a letter.
            while letters
                .next_if(|c| ('\u{20}'..='\u{3f}').contains(c))
                .is_some()
            {}
            letters.next_if(|c| ('\u{40}'..='\u{7e}').contains(c));
        } else if !letter.is_control() {
            text.push(letter);
        }
    }
    text.trim().to_owned()
}

/// The kernel's time of a line, s, as in `[   12.345678]`, and the message after it; the whole line where it has none.
fn message(line: &str) -> (Option<f64>, &str) {
    for (at, _) in line.match_indices('[') {
        let Some((inside, after)) = line[at + 1..].split_once(']') else {
            break;
        };
        let is_number = inside.contains('.')
            && inside
                .trim()
                .bytes()
                .all(|b| b.is_ascii_digit() || b == b'.');
        if let Some(time) = inside.trim().parse().ok().filter(|_| is_number) {
            return (Some(time), without_caller(after.trim_start()));
        }
    }
    (None, line)
}

/// A message without the thread or CPU that printed it, as in `[    T1]` (`CONFIG_PRINTK_CALLER`).
fn without_caller(message: &str) -> &str {
    let caller = message
        .strip_prefix('[')
        .and_then(|rest| rest.split_once(']'));
    match caller {
        Some((caller, after)) if caller.trim().starts_with(['T', 'C']) => after.trim_start(),
        _ => message,
    }
}

/// Length of the line of the failure that a console's text has last, 0 without one, for fuzzing.
///
/// # Panics
/// If the line is longer than it may be, or has control characters.
pub fn read_console(text: &[u8]) -> usize {
    let Some(found) = last_failure(text) else {
        return 0;
    };
    let count = found.line.chars().count();
    assert!(
        count <= MAX_LINE && !found.line.chars().any(char::is_control),
        "{:?}",
        found.line
    );
    count
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PANICKED: &str = "[    0.000000] Linux version 6.1.0 (gcc)\r\n[    1.2] Freeing memory\r\n\
        [    2.500000] Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100\r\n\
        [    2.500100] CPU: 0 PID: 1 Comm: init Not tainted 6.1.0\r\n[    2.6] Kernel Offset: disabled\r\n\
        [    2.600000] ---[ end Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100 ]---\r\n";

    fn last(text: &str) -> Option<(FailureKind, String)> {
        last_failure(text.as_bytes()).map(|found| (found.kind, found.line))
    }

    fn panic(line: &str) -> Option<(FailureKind, String)> {
        Some((FailureKind::Panic, line.to_owned()))
    }

    #[test]
    fn a_panic_is_the_last_boots() {
        let expected =
            panic("Kernel panic - not syncing: Attempted to kill init! exitcode=0x00000100");
        assert_eq!(last(PANICKED), expected);
        assert_eq!(
            last(&format!("{PANICKED}[    2.7] Rebooting in 5 seconds..\n\n")),
            expected
        );
        assert_eq!(
            last(&format!("{PANICKED}{PANICKED}")),
            expected,
            "the second boot panics, too"
        );
        for later in [
            "[    0.000000] Linux version 6.1.0\n",
            "[    0.100000] x86/cpu: a warning of a quiet boot\n",
            "\u{1b}c\u{1b}[?7lSeaBIOS (version 1.16)\n",
            "web01 login: ",
        ] {
            assert_eq!(last(&format!("{PANICKED}{later}")), None, "{later}");
        }
    }

    #[test]
    fn a_panic_is_found_without_times_in_a_cut_text_and_behind_a_prompt() {
        let bare = "Kernel panic - not syncing: VFS: Unable to mount root fs";
        assert_eq!(last(bare), panic(bare));
        assert_eq!(
            last(&format!("login: [  7.1][    T1] {bare}\nCall Trace:\n")),
            panic(bare)
        );
        assert_eq!(
            last(&format!("[ 7.1] ---[ end {bare} ]---\n")),
            panic(bare),
            "the text begins in it"
        );
        assert_eq!(last("kernel panic? no\nLinux version 6.1\n"), None);
    }

    #[test]
    fn lockups_stalls_and_oopses_are_kept_until_the_next_boot() {
        let assert_failure = |text: &str, kind: FailureKind, line: &str| {
            assert_eq!(last(text), Some((kind, line.to_owned())))
        };
        let soft = "watchdog: BUG: soft lockup - CPU#0 stuck for 22s! [a:1]";
        assert_failure(
            &format!("[ 9.0] {soft}\n[ 9.1] Modules linked in:\n"),
            FailureKind::Lockup,
            soft,
        );
        assert_failure(
            "BUG: soft lockup - CPU#3 stuck for 9s!",
            FailureKind::Lockup,
            "BUG: soft lockup - CPU#3 stuck for 9s!",
        );
        for stall in [
            "rcu: INFO: rcu_sched self-detected stall on CPU",
            "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
            "watchdog: Watchdog detected hard LOCKUP on cpu 1",
        ] {
            assert_failure(
                &format!("[ 1.0][   C2] {stall}\r\n"),
                FailureKind::Lockup,
                stall,
            );
        }
        let bug = "BUG: kernel NULL pointer dereference, address: 0000000000000008";
        assert_failure(
            &format!("[ 3.0] {bug}\n[ 3.0] #PF: error_code\n[ 3.0] Oops: 0002 [#1] SMP\n"),
            FailureKind::Oops,
            bug,
        );
        assert_failure("Oops: 0002 [#1]", FailureKind::Oops, "Oops: 0002 [#1]");
        assert_eq!(last(&format!("{bug}\nLinux version 6\n")), None);
        assert_eq!(
            last("[ 1.0] traps: a[7] general protection fault ip:0\n"),
            None,
            "of a program"
        );
        let panicked = format!("{bug}\nKernel panic - not syncing: Fatal exception\n{soft}\n");
        assert_eq!(
            last(&panicked),
            panic("Kernel panic - not syncing: Fatal exception")
        );
    }

    #[test]
    fn what_a_terminal_would_obey_is_left_out_and_a_line_has_an_end() {
        let text = format!(
            "Kernel panic - not syncing: \u{1b}[31mred\u{7}\u{9b}2J{}",
            "x".repeat(999)
        );
        let (_, line) = last(&text).unwrap();
        assert!(
            line.starts_with("Kernel panic - not syncing: red2J") && line.len() == MAX_LINE,
            "{line}"
        );
        assert_eq!(
            last_failure(b"\xff\xfeKernel panic - not syncing\x00: a"),
            last_failure(b"Kernel panic - not syncing: a")
        );
    }

    proptest! {
        #[test]
        fn any_text_gives_a_bounded_printable_line(
            parts in proptest::collection::vec(
                r"(Kernel panic - not syncing|---\[ end |\[ +[0-9]{1,3}\.[0-9]\]|Linux version |BUG: soft lockup - CPU|Oops: |\[|\]|\r|\n|.{0,20})",
                0..40,
            ),
        ) {
            read_console(parts.concat().as_bytes());
        }

        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            read_console(&bytes);
        }

        /// Nothing that a boot printed counts after the next one's first line.
        #[test]
        fn a_later_boot_ends_it(before in r"(Kernel panic - not syncing|Oops: |\n|.{0,9}){0,20}") {
            prop_assert_eq!(last(&format!("{before}\nLinux version 6.1\nok\n")), None);
        }
    }
}
