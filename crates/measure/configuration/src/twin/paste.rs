//! The part of a pasted text that has the VM: behind a prompt, in a log, a list of processes or a unit of systemd.

use super::TwinError;
use super::line::{Line, begins_command, is_program, is_wrapper};
use vmtax_model::shell_line;

/// Most columns that `ps`, `top` or `systemctl` have before a process's command.
const MAX_COLUMNS: usize = 16;
/// Characters that a tree of processes is drawn with.
const TREE: [char; 9] = ['│', '├', '└', '─', '|', '`', '-', '\\', '_'];
/// Ends of the XML in which a domain stands.
const XML_ENDS: [&str; 2] = ["</domain>", "</domstatus>"];
/// A unit's entry of the command that systemd starts.
const UNIT_ENTRY: &str = "ExecStart=";

/// Reads the command line of QEMU in a text; `None` where there is none.
///
/// # Errors
/// As [`Line::find`]; also for a variable in place of QEMU's program, and for what a template of systemd leaves to its instances.
pub(crate) fn line(text: &str) -> Result<Option<Line>, TwinError> {
    let text = last_start(text);
    if let Some(unit) = text.lines().find_map(of_unit) {
        let command = continued(&text[offset(text, unit)..]);
        return match specifier(command) {
            Some(name) => Err(TwinError::Variable(name.to_owned())),
            // What stands for a percent sign in a unit.
            None => Line::find(&command.replace("%%", "%")),
        };
    }
    let mut processes = text.lines().filter_map(of_process);
    if let Some(command) = processes.find(|line| !matches!(Line::find(line), Ok(None))) {
        // The line may be wrapped.
        return Line::find(&text[offset(text, command)..]);
    }
    match Line::find(text)? {
        None => match text.lines().find_map(unnamed_program) {
            Some(name) => Err(TwinError::Variable(name.to_owned())),
            None => Ok(None),
        },
        found => Ok(found),
    }
}

/// Where a part of a text begins in it.
fn offset(text: &str, part: &str) -> usize {
    part.as_ptr() as usize - text.as_ptr() as usize
}

/// The command line in a file: of libvirt's log of a domain the last.
fn last_start(text: &str) -> &str {
    let Some((_, rest)) = text.rsplit_once(": starting up libvirt version") else {
        return text;
    };
    let log = rest.split_once('\n').map_or("", |(_, log)| log);
    continued(log)
}

/// The first line of a text, with the lines that continue it.
fn continued(text: &str) -> &str {
    let mut end = 0;
    for line in text.split_inclusive('\n') {
        end += line.len();
        if !line.trim_end_matches(['\r', '\n']).ends_with('\\') {
            break;
        }
    }
    &text[..end]
}

/// The command of QEMU in a line of `ps`, `pgrep -a`, `top -c` or `systemctl status`; `None` of any other line.
fn of_process(line: &str) -> Option<&str> {
    let (mut columns, mut rest) = (Vec::new(), line.trim_start());
    while columns.len() < MAX_COLUMNS {
        let (word, behind) = rest.split_once(char::is_whitespace)?;
        if begins_command(word) && are_columns(&columns, word) {
            return rest.split_whitespace().any(is_program).then_some(rest);
        }
        columns.push(word);
        rest = behind.trim_start();
    }
    None
}

/// Returns true if words are what a list of processes has before the command `program`: with a PID, and its time last, or little
/// beside the PID.
fn are_columns(words: &[&str], program: &str) -> bool {
    let words = words.iter().map(|word| word.trim_start_matches(TREE));
    let words: Vec<&str> = words.filter(|word| !word.is_empty()).collect();
    let is_number = |word: &&str| word.bytes().all(|b| b.is_ascii_digit());
    let is_time = |word: &str| {
        word.contains(':')
            && word
                .bytes()
                .all(|b| b.is_ascii_digit() || b":.-".contains(&b))
    };
    let numbers = words.iter().filter(|word| is_number(word)).count();
    let is_timed = words.last().is_some_and(|word| is_time(word));
    // Prose has the short names behind a number, too.
    let is_short = !program.contains('/') && !program.contains('-');
    // `taskset 3 qemu-system-x86_64` is a command line.
    let is_wrapped = words.iter().any(|word| is_wrapper(word));
    numbers > 0 && !is_wrapped && (is_timed || (!is_short && words.len() <= numbers + 1))
}

/// The command of QEMU that a unit of systemd starts, without the marks before it.
fn of_unit(line: &str) -> Option<&str> {
    let command = line.trim_start().strip_prefix(UNIT_ENTRY)?;
    let command = command.trim_start_matches(['-', '@', ':', '+', '!']);
    let program = command.split_whitespace().next()?;
    is_program(program).then_some(command)
}

/// Specifiers that a template of systemd leaves to its instances (`%i`).
fn specifier(command: &str) -> Option<&str> {
    let mut rest = command;
    while let Some((at, behind)) = rest.find('%').map(|at| (at, &rest[at + 1..])) {
        if behind.starts_with(|c: char| c.is_ascii_alphabetic()) {
            return Some(&rest[at..at + 2]);
        }
        rest = behind.strip_prefix('%').unwrap_or(behind);
    }
    None
}

/// The variable that stands for QEMU's program in a line: `$QEMU -m 1G`.
fn unnamed_program(line: &str) -> Option<&str> {
    let mut words = line.split_whitespace();
    let name = words.next()?.trim_matches('"');
    let upper = name.to_ascii_uppercase();
    let is_tool = ["IMG", "NBD"].iter().any(|tool| upper.contains(tool));
    let is_qemu = name.starts_with('$') && (upper.contains("QEMU") || upper.contains("KVM"));
    let has_option = words.next().is_some_and(|word| word.starts_with('-'));
    (is_qemu && !is_tool && has_option).then_some(name)
}

/// The XML in a text, without the prompt, the command or the fence of a page around it; `None` of a text that has none.
pub(crate) fn xml(text: &str) -> Option<&str> {
    let text = text.trim_start_matches('\u{feff}').trim_start();
    let is_begin = |line: &&str| {
        let line = line.trim_start();
        let behind = line
            .strip_prefix("<domain")
            .or(line.strip_prefix("<domstatus"));
        let ends = |rest: &str| rest.is_empty() || rest.starts_with([' ', '>', '\t']);
        line.starts_with("<?xml") || behind.is_some_and(ends)
    };
    let is_file = text.starts_with('<');
    let begin = if is_file {
        text
    } else {
        text[offset(text, text.lines().find(is_begin)?)..].trim_start()
    };
    let ends = XML_ENDS
        .iter()
        .filter_map(|end| Some(begin.rfind(end)? + end.len()));
    // A file's last end of line is the file's: its XML is kept whole.
    let is_around = |end: &usize| {
        let behind = begin[*end..].trim_start();
        !(behind.starts_with('<') || is_file && behind.is_empty())
    };
    let end = ends.max().filter(is_around);
    Some(&begin[..end.unwrap_or(begin.len())])
}

/// The arguments in a file of `/proc/PID/cmdline`, with a NUL behind each, as a shell has them; also as an editor shows it (`^@`).
/// `None` of any other text.
pub(crate) fn printed_arguments(text: &str) -> Option<String> {
    let separator = ["\0", "^@-"].into_iter().find(|one| text.contains(one))?;
    let separator = separator.trim_end_matches('-');
    let (arguments, behind) = text.rsplit_once(separator)?;
    let mut words: Vec<String> = arguments.split(separator).map(str::to_owned).collect();
    // The prompt or the command may stand before the program, and a prompt behind the last argument.
    let first = words.first_mut()?;
    *first = first.rsplit('\n').next().unwrap_or_default().to_owned();
    if !is_program(first) {
        return None;
    }
    let behind = behind.trim();
    if !behind.is_empty() && !behind.ends_with(['$', '#', '%', '>']) {
        words.push(behind.to_owned());
    }
    Some(shell_line(&words))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The words behind the program of the line in a text.
    fn words(text: &str) -> Vec<String> {
        let line = line(text).unwrap();
        line.unwrap_or_else(|| panic!("{text}")).words[1..].to_vec()
    }

    #[test]
    fn a_list_of_processes_is_read_without_its_columns() {
        let qemu = "/usr/bin/qemu-system-x86_64 -name guest=my vm,debug-threads=on -m 1G";
        let read = ["-name", "guest=my vm,debug-threads=on", "-m", "1G"];
        for list in [
            // ps aux, ps -ef, ps -eo pid,args, pgrep -a, ps axf, top -c
            "USER PID %CPU %MEM VSZ RSS TTY STAT START TIME COMMAND\nroot 1 0.0 0.1 168 13 ? Ss Nov29 0:07 /sbin/init\n\
             libvirt+ 4711 98.5 12.1 5012345 812345 ? Sl Nov29 123:45 LINE\nroot 4800 0.0 0.0 6472 720 pts/0 S+ 12:00 0:00 grep --color=auto qemu",
            "$ ps -ef | grep qemu\nroot 99 1 0 10:00 ? 00:00:00 grep qemu-kvm -m\nqemu 4711 1 98 Nov29 ? 1-01:23:45 LINE\nqemu 4712 1 98 Nov29 ? 1-01:23:45 /usr/bin/kvm -m 2G",
            "    PID COMMAND\n   4711 LINE\n   4712 -bash",
            "4711 LINE",
            " 4711 ?        Sl   123:45  \\_ LINE\n 4712 ? S 0:00 \\_ [kworker/0:1-events]",
            "4711 root 20 0 5012m 812m 20m S 5.0 10.1 123:45.67 LINE",
            "root 4710 0.0 0.0 9 9 pts/0 S 12:00 0:00 sudo it's\nroot 4711 0.0 0.0 9 9 pts/0 S 12:00 0:00 sudo LINE",
            "4711 root LINE",
            // systemctl status
            "\u{25cf} machine-qemu\\x2d1\\x2dweb01.scope - Virtual Machine qemu-1-web01\n   Memory: 8.1G\n     CGroup: /machine.slice/machine-qemu.scope\n\
             \u{20}            \u{2514}\u{2500}libvirt\n               \u{251c}\u{2500}4711 LINE\n               \u{2514}\u{2500}4712 /usr/bin/other -m 3G\n\n\
             Nov 30 12:00:00 host systemd[1]: Started Virtual Machine qemu-1-web01.",
            "  CGroup: /system.slice/vm.service\n          |-4700 /bin/sh -c x\n          `-4711 LINE",
        ] {
            assert_eq!(words(&list.replace("LINE", qemu)), read, "{list}");
        }
        // systemctl cuts lines to the terminal's width.
        let cut = "  \u{2514}\u{2500}4711 /usr/bin/qemu-kvm -m 1G -device virtio-net-pci,netdev=hos\u{2026}";
        let why = line(cut)
            .map(|line| line.is_some())
            .unwrap_err()
            .to_string();
        assert!(why.contains("left out"), "{why}");
        for prose in [
            "uses 2 kvm processes -each with",
            "root 1 0 0:07 /sbin/init -m",
            "10:00 qemu",
            "99 grep qemu-kvm",
        ] {
            assert!(line(prose).unwrap().is_none(), "{prose}");
        }
    }

    #[test]
    fn a_unit_of_systemd_has_the_line() {
        let unit = "[Unit]\nDescription=qemu -x\n[Service]\nExecStartPre=/bin/ip link\nExecStart=-/usr/bin/qemu-system-x86_64 -m 1G \\\n  -drive file=/100%%.img,if=virtio\nExecStop=/bin/kill\n";
        assert_eq!(
            words(unit),
            ["-m", "1G", "-drive", "file=/100%.img,if=virtio"]
        );
        let template = unit.replace("100%%", "%i");
        let why = line(&template)
            .map(|line| line.is_some())
            .unwrap_err()
            .to_string();
        assert!(why.contains("the variable %i:"), "{why}");
    }

    #[test]
    fn a_variable_in_place_of_the_program_is_refused_by_its_name() {
        let refused = |text: &str| {
            line(text)
                .map(|line| line.is_some())
                .map_err(|why| why.to_string())
        };
        for name in ["$QEMU", "\"${QEMU_BIN}\"", "$KVM"] {
            let why = refused(&format!("set -e\n{name} -m 1G -smp 2")).unwrap_err();
            assert!(why.contains(name.trim_matches('"')), "{why}");
        }
        assert_eq!(refused("$QEMU_IMG -h\nqemu-kvm -m 1G"), Ok(true));
        assert_eq!(refused("$QEMU_IMG -h\n$QEMU is slow"), Ok(false));
    }

    #[test]
    fn xml_is_read_without_what_is_around_it() {
        let xml_of = "<domain type='kvm'>\n  <name>a</name>\n</domain>";
        for around in [
            "XML",
            "$ virsh dumpxml a\nXML\n",
            "[root@host ~]# virsh dumpxml a\r\nXML\r\n\r\n[root@host ~]# ",
            "My VM is slow:\n```xml\nXML\n```\nWhat can I do?",
            "\u{feff}virsh # dumpxml a\n  XML",
        ] {
            assert_eq!(
                xml(&around.replace("XML", xml_of)),
                Some(xml_of),
                "{around}"
            );
        }
        let file = format!("{xml_of}\n");
        assert_eq!(xml(&file), Some(&*file));
        let stored =
            "<!-- edited by virsh -->\n<domstatus>\n<domain/>\n</domstatus>\n<!-- end -->\n";
        assert_eq!(xml(stored), Some(stored));
        assert_eq!(
            xml("$ cat a\n<domain\n  type='kvm'/>"),
            Some("<domain\n  type='kvm'/>")
        );
        assert_eq!(xml("qemu-kvm <domains> -m 1G"), None);
        assert_eq!(xml("qemu-kvm \\\n <domains> -m 1G"), None);
    }

    #[test]
    fn the_arguments_in_proc_are_read_as_they_are() {
        let bytes = "/usr/bin/qemu-kvm\0-name\0it's my vm\0-append\0\0-m\x001G\0";
        let read = ["-name", "it's my vm", "-append", "", "-m", "1G"];
        assert_eq!(words(&printed_arguments(bytes).unwrap()), read);
        let shown = bytes.replace('\0', "^@");
        for text in [
            shown.clone(),
            shown.trim_end_matches("^@").to_owned(),
            format!("me@host:~$ cat /proc/4711/cmdline\n{shown}me@host:~$ "),
        ] {
            assert_eq!(words(&printed_arguments(&text).unwrap()), read, "{text}");
        }
        for other in ["a\0b", "a^@-b", "qemu-kvm -m 1G", "\0"] {
            assert_eq!(printed_arguments(other), None, "{other}");
        }
    }

    #[test]
    fn of_a_log_the_last_start_is_read() {
        let start = |size| {
            format!(
                "2026-01-01: starting up libvirt version: 9\nLC_ALL=C \\\n/usr/bin/qemu-kvm \\\n-m {size}\nchar device: x\n"
            )
        };
        let log = start("1G") + &start("2G");
        assert_eq!(words(&log), ["-m", "2G"]);
    }

    #[test]
    fn long_lists_are_read_in_bounded_time() {
        let begin = std::time::Instant::now();
        for part in [
            "4711 qemu-kvm \n",
            "4711 qemu-kvm it's\n",
            "1 0:00 sudo a\n",
            "$QEMU\n",
            "%",
            "<domain\n",
        ] {
            let text = part.repeat((1 << 18) / part.len());
            let _ = line(&text);
            let _ = line(&format!("ExecStart=qemu-kvm {text}"));
            let _ = xml(&text);
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(60));
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "(root 4711 |0:00 |qemu-kvm |ExecStart=|%i|\u{2514}\u{2500}|\\^@-|\0|</?domain>|[ -~\n]){0,60}") {
            let _ = line(&text);
            let _ = xml(&text);
            let _ = printed_arguments(&text);
        }
    }
}
