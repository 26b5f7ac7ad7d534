//! A QEMU command line as people have it: behind a shell's prompt, in a script, with a pipe behind it.

use super::TwinError;
use vmtax_model::shell_words;
use vmtax_vmm::qemu::arguments::{Arguments, has_argument};

/// QEMU's program for x86-64, and its names of distributions.
const PROGRAMS: [&str; 5] = [
    "qemu-system-x86_64",
    "qemu-system",
    "qemu-kvm",
    "kvm",
    "qemu",
];
/// Programs that decide on which CPUs, with which priority or within which limits QEMU runs.
const WRAPPERS: [&str; 9] = [
    "cgexec",
    "chrt",
    "ionice",
    "nice",
    "numactl",
    "prlimit",
    "schedtool",
    "systemd-run",
    "taskset",
];
/// Programs among them that change nothing of its speed.
const SILENT_WRAPPERS: [&str; 6] = ["env", "exec", "nohup", "setsid", "sudo", "time"];
/// Words between which a shell has another command each.
const SEPARATORS: [&str; 7] = ["|", "||", "|&", "&", "&&", ";", ";;"];
/// Options of words that are the user's or the guest's own.
const FREE_TEXTS: [&str; 4] = ["append", "fw_cfg", "name", "smbios"];
/// Ends of the names of images.
const IMAGES: [&str; 8] = [
    ".img", ".iso", ".qcow2", ".qcow", ".raw", ".vdi", ".vhdx", ".vmdk",
];
/// A placeholder has its end within so many bytes.
const MAX_PLACEHOLDER: usize = 80;
/// Most letters of a word in an error.
const MAX_SHOWN: usize = 60;

/// A QEMU command line as people have it.
pub(crate) struct Line {
    /// The words from QEMU's program on.
    pub words: Vec<String>,
    /// Programs before it that decide where and how QEMU runs.
    pub wrappers: Vec<String>,
    /// Number of further command lines of QEMU in the text, which are not read.
    pub further: usize,
}

impl Line {
    /// Reads the first command of QEMU in a text; `None` where there is none.
    ///
    /// # Errors
    /// [`TwinError`] for a quote without its end, for what stands for something that was left out, and for a command that starts no VM.
    pub fn find(text: &str) -> Result<Option<Line>, TwinError> {
        let found = Line::search(text, false)?;
        // A line behind `#` is a comment, unless there is no other: then that is root's prompt.
        found.map_or_else(|| Line::search(text, true), |line| Ok(Some(line)))
    }

    fn search(text: &str, has_root_prompt: bool) -> Result<Option<Line>, TwinError> {
        let mut pieces = Pieces { rest: text };
        let Some(first) = Line::next(&mut pieces, has_root_prompt)? else {
            return Ok(None);
        };
        let mut further = 0;
        // A command with a fault counts, and ends the search.
        while let Some(line) = Line::next(&mut pieces, has_root_prompt).transpose() {
            further += 1;
            if line.is_err() {
                break;
            }
        }
        Ok(Some(Line { further, ..first }))
    }

    /// The next command of QEMU.
    fn next(pieces: &mut Pieces<'_>, has_root_prompt: bool) -> Result<Option<Line>, TwinError> {
        let mut command = Command::default();
        loop {
            let before = pieces.rest;
            let Some(piece) = pieces.next()? else {
                break;
            };
            if piece.raw.starts_with('#') {
                let begins = command.words.is_empty() || piece.begins_line;
                if !(has_root_prompt && begins && piece.raw == "#") {
                    pieces.skip_line();
                } else if let Some(line) = Line::of(std::mem::take(&mut command).words)? {
                    return Ok(Some(line));
                }
                continue;
            }
            if piece.ends(&command.words) {
                if let Some(line) = Line::of(std::mem::take(&mut command).words)? {
                    // This piece begins the next command.
                    pieces.rest = before;
                    return Ok(Some(line));
                }
            }
            match piece.redirection() {
                _ if piece.is_separator() => {}
                Some("") => _ = pieces.next()?,
                Some(_) => {}
                None => command.push(&piece),
            }
            if command.is_complete {
                if let Some(line) = Line::of(std::mem::take(&mut command).words)? {
                    return Ok(Some(line));
                }
            }
        }
        Line::of(command.words)
    }

    /// The words of a command as a line; `None` of a command that is not QEMU's.
    fn of(mut wrappers: Vec<String>) -> Result<Option<Line>, TwinError> {
        let is_prompt = |word: &String| word.ends_with(['$', '#', '%']);
        // `user@host:~$`, `[user@host ~]#`
        let prompt = wrappers.iter().take(2).position(is_prompt);
        wrappers.drain(..prompt.map_or(0, |at| at + 1));
        let is_before_qemu = |word: &String| is_wrapper(word) || is_assignment(word);
        let mut all = wrappers.iter();
        let begin = all.position(|word| is_program(word) && !is_assignment(word));
        let is_line = |at: &usize| *at == 0 || wrappers.first().is_some_and(is_before_qemu);
        let Some(begin) = begin.filter(is_line) else {
            return Ok(None);
        };
        let words = wrappers.split_off(begin);
        // Prose may begin with QEMU's name, too.
        let has_option = words.len() == 2 || words.iter().any(|word| word.starts_with('-'));
        if words.len() < 2 || !has_option {
            return Ok(None);
        }
        let shown = |word: &str| word.chars().take(MAX_SHOWN).collect::<String>();
        if let Some(name) = words.iter().find_map(|word| variable(word)) {
            return Err(TwinError::Variable(shown(name)));
        }
        if let Some(part) = words.iter().find_map(|word| placeholder(word)) {
            return Err(TwinError::LeftOut(shown(part)));
        }
        if words.iter().cloned().collect::<Arguments>().ask_for_help() {
            return Err(TwinError::Help);
        }
        Ok(Some(Line {
            words,
            wrappers,
            further: 0,
        }))
    }

    /// The programs before QEMU that decide where and how it runs.
    pub fn deciding_wrappers(&self) -> impl Iterator<Item = &str> {
        let names = self.wrappers.iter().map(|word| file_name(word));
        names.filter(|name| WRAPPERS.contains(name))
    }
}

/// A command of a text, while it is read.
#[derive(Default)]
struct Command {
    words: Vec<String>,
    /// True behind an option of words for people, without quotes: more of its words may follow, as a process's arguments are printed.
    has_free_text: bool,
    /// True behind a separator that stood at the end of a word.
    is_complete: bool,
}

impl Command {
    fn push(&mut self, piece: &Piece<'_>) {
        if piece.is_json {
            self.words.push(piece.raw.to_owned());
            return;
        }
        let raw = piece.raw.trim_end_matches([';', '&']);
        self.is_complete = raw.len() < piece.raw.len() && !raw.ends_with('\\');
        let raw = if self.is_complete { raw } else { piece.raw };
        let is_option = raw.starts_with('-');
        let is_image = raw.starts_with(['/', '.']) || IMAGES.iter().any(|end| raw.ends_with(end));
        match self.words.last_mut() {
            Some(last) if self.has_free_text && !is_option && !is_image => {
                last.push(' ');
                last.push_str(raw);
            }
            _ => {
                let option = self.words.last().and_then(|word| word.strip_prefix('-'));
                let is_free = option.is_some_and(|option| FREE_TEXTS.contains(&option));
                self.has_free_text = is_free && !raw.contains(['\'', '"']);
                self.words.extend(shell_words(raw).unwrap_or_default());
            }
        }
    }
}

/// The pieces of a text between its blanks, as a shell has them before it removes quotes.
struct Pieces<'t> {
    rest: &'t str,
}

/// A word with its quotes, or an operator.
struct Piece<'t> {
    raw: &'t str,
    /// True for a JSON object without quotes around it, as a process's arguments are printed.
    is_json: bool,
    /// True for the first of a line that does not continue the one before it.
    begins_line: bool,
    /// The text behind it.
    behind: &'t str,
}

impl<'t> Pieces<'t> {
    /// The next piece.
    ///
    /// # Errors
    /// [`TwinError::Quote`] for a quote without its end.
    fn next(&mut self) -> Result<Option<Piece<'t>>, TwinError> {
        let mut begins_line = false;
        loop {
            let rest = self.rest.trim_start();
            begins_line |= self.rest[..self.rest.len() - rest.len()].contains('\n');
            self.rest = rest;
            let continued = rest.strip_prefix("\\\n").or(rest.strip_prefix("\\\r\n"));
            match continued {
                Some(behind) => self.rest = behind,
                None => break,
            }
        }
        if self.rest.is_empty() {
            return Ok(None);
        }
        let json = json_length(self.rest);
        let end = match json {
            Some(length) => Some(length),
            None => word_length(self.rest)?,
        };
        let (raw, behind) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = behind;
        Ok(Some(Piece {
            raw,
            is_json: json.is_some(),
            begins_line,
            behind,
        }))
    }

    /// Leaves out the rest of the line.
    fn skip_line(&mut self) {
        let end = self.rest.find('\n').unwrap_or(self.rest.len());
        self.rest = &self.rest[end..];
    }
}

/// Length of the JSON object with which a text begins; `None` where it begins with none.
fn json_length(text: &str) -> Option<usize> {
    if !text.starts_with("{\"") {
        return None;
    }
    let mut objects = serde_json::Deserializer::from_str(text).into_iter::<serde::de::IgnoredAny>();
    objects.next()?.ok()?;
    Some(objects.byte_offset())
}

/// Length of the word with which a text begins, with its quotes; `None` where that is all of it.
///
/// # Errors
/// [`TwinError::Quote`] for a quote without its end.
fn word_length(text: &str) -> Result<Option<usize>, TwinError> {
    let (mut quote, mut is_escaped) = (None, false);
    let end = text.find(|letter: char| {
        match (quote, letter) {
            _ if is_escaped => is_escaped = false,
            (None | Some('"'), '\\') => is_escaped = true,
            (None, '\'' | '"') => quote = Some(letter),
            (Some(open), _) if letter == open => quote = None,
            (None, _) if letter.is_whitespace() => return true,
            _ => {}
        }
        false
    });
    match quote {
        None => Ok(end),
        Some(_) => Err(TwinError::Quote),
    }
}

impl Piece<'_> {
    /// Returns true for what a shell has between two commands.
    fn is_separator(&self) -> bool {
        SEPARATORS.contains(&self.raw) || self.raw.starts_with("<<")
    }

    /// Returns true if the command before it ends here.
    fn ends(&self, command: &[String]) -> bool {
        self.is_separator() || (self.begins_line && !self.continues(command))
    }

    /// Returns true if it belongs to the command above: of QEMU's options each may have a line, without a word about it.
    fn continues(&self, command: &[String]) -> bool {
        let is_option = !self.raw.trim_start_matches('-').is_empty() && self.raw.starts_with('-');
        let is_value = command.last().is_some_and(|last| {
            let option = last.strip_prefix('-');
            option.is_some_and(|option| has_argument(option.trim_start_matches('-')))
        });
        (is_option || is_value) && command.iter().any(|word| is_program(word))
    }

    /// The target of a redirection, which may be the next piece; `None` of a word.
    fn redirection(&self) -> Option<&str> {
        let operator = self.raw.trim_start_matches(|c: char| c.is_ascii_digit());
        let operator = operator.strip_prefix('&').unwrap_or(operator);
        let is_one = operator.starts_with(['<', '>']) && !self.is_placeholder();
        is_one.then(|| operator.trim_start_matches(['<', '>', '&', '|']))
    }

    /// Returns true for the begin of `<other options>`.
    fn is_placeholder(&self) -> bool {
        let name = self.raw.strip_prefix('<').unwrap_or_default();
        let text = format!(
            "{name}{}",
            self.behind.get(..MAX_PLACEHOLDER).unwrap_or(self.behind)
        );
        let end = text.find(['<', '>', '\n']);
        let closed = end.filter(|end| text[*end..].starts_with('>'));
        let is_name = |end: usize| text[..end].ends_with(|c: char| c.is_alphanumeric());
        name.starts_with(|c: char| c.is_alphabetic()) && closed.is_some_and(is_name)
    }
}

/// Returns true for `NAME=VALUE`, which sets a variable of QEMU's environment.
fn is_assignment(word: &str) -> bool {
    word.split_once('=').is_some_and(|(name, _)| {
        !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_')
    })
}

/// The variable of a shell that a word has.
fn variable(word: &str) -> Option<&str> {
    let (at, _) = word.match_indices('$').find(|(at, _)| {
        let next = word[at + 1..].bytes().next();
        next.is_some_and(|b| b.is_ascii_alphabetic() || b"_{(".contains(&b))
    })?;
    let name = &word[at + 1..];
    let is_end = |c: char| !c.is_ascii_alphanumeric() && !"_{(".contains(c);
    let end = name.find(is_end).unwrap_or(name.len());
    Some(&word[at..at + 1 + end])
}

/// The part of a word that stands for something: `...`, `[OPTIONS]`, `<name>`.
fn placeholder(word: &str) -> Option<&str> {
    let is_one = |part: &&str| {
        let bare = part.trim_start_matches('[');
        let is_named =
            part.starts_with('<') && part.ends_with(|c: char| c == '>' || c.is_alphanumeric());
        let is_cut = bare.starts_with("...") || bare.starts_with('…') || part.ends_with('…');
        is_cut || (is_named && part.len() > 1)
    };
    word.split([',', '='])
        .find(is_one)
        .or_else(|| optional(word))
}

/// The optional part of a word: `[:PORT]`, `[+TYPE]`, `[,file.port=PORT]`. An address has such brackets with digits within.
fn optional(word: &str) -> Option<&str> {
    let mut begins = word.match_indices('[');
    let found = begins.find(|(at, _)| {
        let inner = word[at + 1..].trim_start_matches([',', '+', ':', '?']);
        let name = inner
            .find(|c: char| !c.is_ascii_uppercase())
            .unwrap_or(inner.len());
        let is_option = word[at + 1..].starts_with(',');
        is_option || inner[..name].contains(|c: char| c > 'F')
    });
    found.map(|(at, _)| {
        let end = word[at..].find(']').map_or(word.len(), |end| at + end + 1);
        &word[at..end]
    })
}

/// Returns the name of a program without its folder.
pub(crate) fn file_name(word: &str) -> &str {
    word.rsplit('/').next().unwrap_or(word)
}

/// Returns true if a word is a program that starts another one.
pub(crate) fn is_wrapper(word: &str) -> bool {
    let name = file_name(word);
    WRAPPERS.contains(&name) || SILENT_WRAPPERS.contains(&name)
}

/// Returns true if a command of QEMU begins with a word, without variables of its environment.
pub(crate) fn begins_command(word: &str) -> bool {
    is_program(word) || is_wrapper(word)
}

/// Returns true if a word is QEMU's program.
pub(crate) fn is_program(word: &str) -> bool {
    let name = file_name(word);
    PROGRAMS.contains(&name) || name.starts_with("qemu-system-")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use vmtax_model::shell_line;

    /// The words behind the program of the line in a text.
    fn words(text: &str) -> Vec<String> {
        let line = Line::find(text).unwrap();
        line.unwrap_or_else(|| panic!("{text}")).words[1..].to_vec()
    }

    fn refusal(text: &str) -> String {
        let refused = Line::find(text).map(|line| line.is_some());
        refused.unwrap_err().to_string()
    }

    #[test]
    fn a_line_is_read_as_a_shell_reads_it() {
        let line = "qemu  -m 1G \\\n -append 'a b' -device '{\"a\": 1}' \"x\\\"y\\n\" ''";
        let read = [
            "-m",
            "1G",
            "-append",
            "a b",
            "-device",
            "{\"a\": 1}",
            "x\"y\\n",
            "",
        ];
        assert_eq!(words(line), read);
        assert_eq!(words(&line.replace('\n', "\r\n")), read);
        assert!(matches!(Line::find("qemu -x 'x"), Err(TwinError::Quote)));
    }

    #[test]
    fn a_prompt_before_a_line_is_none_of_its_words() {
        for prompt in [
            "$",
            "#",
            "%",
            "host#",
            "me@host:~/vm$",
            "[root@host ~]#",
            "$ sudo",
            "# taskset -c 3",
        ] {
            assert_eq!(
                words(&format!("{prompt} ./qemu-system-x86_64 -m 1G")),
                ["-m", "1G"],
                "{prompt}"
            );
        }
        let root = "# modprobe vfio-pci\n# lspci -n\n06:0d.0 0401\n# echo 1 > /sys/x\n\n# qemu-kvm -m 1G\n# echo done";
        assert_eq!(words(root), ["-m", "1G"]);
        // Beside a command this is a comment.
        let script =
            "#!/bin/sh\n# qemu-kvm -m 2G\nqemu-kvm -m 1G \\\n  # -snapshot \\\n  -smp 2 # two";
        assert_eq!(words(script), ["-m", "1G", "-smp", "2"]);
    }

    #[test]
    fn other_commands_of_a_script_are_none_of_its_words() {
        let line = ["-m", "1G", "-nographic"];
        for around in [
            "LINE > log 2>&1 &",
            "LINE 2>err >>log < /dev/null | tee log",
            "LINE; echo done",
            "LINE && poweroff",
            "LINE& wait",
            "LINE\necho done\n",
            "LINE\n\nThe guest is slow.",
            "set -e\ncd /srv/vm\nqemu-img create -f raw a 1G; LINE",
            "```\nLINE\n```",
            "LINE <<end\nx\nend",
        ] {
            let text = around.replace("LINE", "qemu-kvm -m 1G -nographic");
            assert_eq!(words(&text), line, "{around}");
        }
        // Each option may have a line, as a page shows them.
        assert_eq!(
            words("qemu-kvm -m 1G\n-nographic\n -append\nquiet"),
            ["-m", "1G", "-nographic", "-append", "quiet"]
        );
        assert_eq!(
            words("qemu-kvm -append 'a | b > c; d' -m a;b"),
            ["-append", "a | b > c; d", "-m", "a;b"]
        );
    }

    #[test]
    fn the_arguments_of_a_process_are_read_as_they_are_printed() {
        let line = r#"/usr/bin/qemu-kvm -name my vm -blockdev {"driver":"file","filename":"/a b","node-name":"f"} -smbios type=1,product=Red Hat -append root=/dev/vda ro quiet -m 1G"#;
        let read = [
            "-name",
            "my vm",
            "-blockdev",
            r#"{"driver":"file","filename":"/a b","node-name":"f"}"#,
            "-smbios",
            "type=1,product=Red Hat",
            "-append",
            "root=/dev/vda ro quiet",
            "-m",
            "1G",
        ];
        assert_eq!(words(line), read);
        assert_eq!(
            words("qemu-kvm -append root=/dev/sda linux.img"),
            ["-append", "root=/dev/sda", "linux.img"]
        );
        assert_eq!(
            words("qemu-kvm -append 'root=/dev/sda ro' linux"),
            ["-append", "root=/dev/sda ro", "linux"]
        );
    }

    #[test]
    fn what_stands_for_something_is_refused() {
        for (line, part) in [
            ("qemu-kvm ... -m 1G", "..."),
            ("qemu-kvm -m 1G [...]", "[...]"),
            ("qemu-kvm [...OPTIONS...] -m 1G", "[...OPTIONS...]"),
            ("qemu-kvm -machine ...,usb=off -m 1G", "..."),
            ("qemu-kvm -cpu host,vmx=off,…", "…"),
            ("qemu-kvm -m 1G -device virtio-net-p…", "virtio-net-p…"),
            ("qemu-kvm <other options> -m 1G", "<other"),
            ("qemu-kvm -m <size> -smp 1", "<size>"),
            ("qemu-kvm -netdev <backend>,id=n", "<backend>"),
            ("qemu-kvm -m 1G -drive file=nbd://[USER@]HOST/x", "[USER@]"),
            (
                "qemu-kvm -m 1G -drive file.host=a[,file.port=b]",
                "[,file.port=b]",
            ),
        ] {
            let why = refusal(line);
            assert!(
                why.contains(&format!("has {part}, which stands for")),
                "{line}: {why}"
            );
        }
        for line in [
            "qemu-kvm -m 1G -hda /srv/a...b.raw",
            "qemu-kvm -drive file=nbd://[fe80::1]:10809/x",
            "qemu-kvm -drive file=nbd://[FE80::1]:10809/x",
            "qemu-kvm -m 1G <a >b",
        ] {
            assert!(Line::find(line).unwrap().is_some(), "{line}");
        }
    }

    #[test]
    fn a_line_that_starts_no_vm_is_refused() {
        for line in [
            "qemu-system-x86_64 -cpu help | sort",
            "$ qemu-kvm --version",
            "kvm -machine help",
        ] {
            assert!(refusal(line).contains("starts no VM"), "{line}");
        }
        for prose in [
            "kvm is slow here",
            "A host.\nqemu needs a lot of memory\n",
            "web01 kvm",
            "QEMU=build/qemu-system-x86_64 tests/qos-test --verbose",
        ] {
            assert!(Line::find(prose).unwrap().is_none(), "{prose}");
        }
    }

    #[test]
    fn long_texts_are_read_in_bounded_time() {
        let begin = std::time::Instant::now();
        for part in [
            "a ",
            "qemu-kvm ",
            "\n-a ",
            "<a ",
            "{\"a\" ",
            "# ",
            "a; ",
            "\\\n",
            "-append a ",
        ] {
            let text = part.repeat((1 << 16) / part.len());
            let _ = Line::find(&text);
            let _ = Line::find(&format!("qemu-kvm -m 1G {text}"));
        }
        assert!(begin.elapsed() < std::time::Duration::from_secs(60));
    }

    proptest! {
        #[test]
        fn what_a_shell_would_print_is_read_as_it_was(all in proptest::collection::vec("[ -~]{0,10}", 1..6)) {
            let line = format!("qemu-kvm -m 1G {}", shell_line(&all));
            let is_plain = all.iter().all(|word| variable(word).is_none() && placeholder(word).is_none() && !word.contains(['?', 'h', '<']));
            if is_plain {
                prop_assert_eq!(&words(&line)[2..], all);
            }
        }

        #[test]
        fn any_text_is_survived(text in "(qemu-kvm |[ -~\n\\\\]|\\\\\r?\n|[<>|;&#'\"$]){0,60}") {
            let _ = Line::find(&text);
        }
    }
}
