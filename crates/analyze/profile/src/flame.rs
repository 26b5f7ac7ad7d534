//! Folded stacks (a line each, `thread;outermost;…;innermost count`, as flame graph tools read them), and flame graphs: pictures of a
//! profile, and of the difference between two.

use crate::ProfileError;
use inferno::differential;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use std::collections::{BTreeMap, HashMap};
use std::io::Cursor;
use std::path::Path;
use vmtax_model::samples::{CodeOrigin, Function, Profile, Sample, Thread};

/// Suffix of frames by code origin: for the kernel and translated code as flame graph tools write it.
const MARKS: [(CodeOrigin, &str); 4] = [
    (CodeOrigin::Kernel, "_[k]"),
    (CodeOrigin::Translated, "_[j]"),
    (CodeOrigin::GuestKernel, "_[gk]"),
    (CodeOrigin::GuestUser, "_[g]"),
];

/// The lines, sorted.
pub fn fold(profile: &Profile) -> Vec<String> {
    let frames: Vec<String> = profile.functions.iter().map(frame).collect();
    // Threads of one name are one, as QEMU's workers come and go.
    let mut lines: BTreeMap<String, u64> = BTreeMap::new();
    for ((thread, stack), count) in profile.counts() {
        let mut line = clean(&profile.threads[thread].name);
        for &function in &profile.stacks[stack] {
            line.push(';');
            line.push_str(&frames[function]);
        }
        *lines.entry(line).or_default() += count;
    }
    lines
        .into_iter()
        .map(|(line, count)| format!("{line} {count}"))
        .collect()
}

/// A function as a frame of a line.
pub(crate) fn frame(function: &Function) -> String {
    let mark = MARKS
        .iter()
        .find(|(origin, _)| *origin == function.origin)
        .map_or("", |(_, mark)| mark);
    clean(&function.name) + mark
}

/// A name without what ends a frame or a line, and what XML cannot hold.
pub(crate) fn clean(name: &str) -> String {
    let is_bad = |c: char| c == ';' || c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}');
    name.chars()
        .map(|c| if is_bad(c) { ',' } else { c })
        .collect()
}

/// Parses folded stacks of any tool. The outermost frame counts as the thread.
///
/// # Errors
/// [`ProfileError::Damaged`] with the first line that is not a folded stack.
pub fn unfold(text: &str, file: &Path) -> Result<Profile, ProfileError> {
    let mut profile = Profile::default();
    let mut functions: HashMap<String, usize> = HashMap::new();
    let mut threads: HashMap<String, usize> = HashMap::new();
    let mut total = 0u64;
    for (number, line) in text
        .lines()
        .enumerate()
        .filter(|(_, line)| !line.trim().is_empty())
    {
        let damaged = || ProfileError::Damaged {
            file: file.to_owned(),
            why: format!(
                "line {} is not a folded stack: expected `thread;function;function count`",
                number + 1
            ),
        };
        let (frames, count) = line.trim_end().rsplit_once(' ').ok_or_else(damaged)?;
        let weight: u64 = count.parse().map_err(|_| damaged())?;
        total = total.checked_add(weight).ok_or_else(damaged)?;
        let mut frames = frames.split(';');
        let name = frames.next().unwrap_or_default();
        let thread = *threads.entry(name.to_owned()).or_insert_with(|| {
            profile.threads.push(Thread {
                tid: 0,
                name: name.to_owned(),
            });
            profile.threads.len() - 1
        });
        let stack = frames.map(|frame| {
            *functions.entry(frame.to_owned()).or_insert_with(|| {
                profile.functions.push(function(frame));
                profile.functions.len() - 1
            })
        });
        profile.stacks.push(stack.collect());
        profile.samples.push(Sample {
            thread,
            stack: profile.stacks.len() - 1,
            time: 0,
            weight,
            cpu: 0,
        });
    }
    Ok(profile)
}

fn function(frame: &str) -> Function {
    let marked = MARKS
        .iter()
        .find_map(|(origin, mark)| Some((frame.strip_suffix(mark)?, *origin)));
    let (name, origin) = marked.unwrap_or((frame, CodeOrigin::Program));
    // `file:nearest+0x10`, `file:nearest-0x10` and `file:0x10`, as names.rs makes them.
    let named = !name.split_once(':').is_some_and(|(_, place)| {
        ["+0x", "-0x"].iter().any(|sign| place.contains(sign)) || place.starts_with("0x")
    });
    Function {
        name: name.to_owned(),
        module: String::new(),
        origin,
        named,
    }
}

const LICENCE: &str = "The script in this file is part of inferno, licensed under CDDL-1.0 (https://opensource.org/license/cddl-1-0); \
     its source is the crate inferno. Modified by vmtax: labels need 6 characters of room.";

/// A flame graph as SVG, with search and zoom. Colours by code origin: the program red, libraries
/// yellow, the kernel orange, translated code green; the guest's own kernel blue, its programs cyan.
///
/// # Errors
/// [`ProfileError::Drawing`] when there is nothing to draw.
pub fn draw(profile: &Profile, title: &str, subtitle: &str) -> Result<String, ProfileError> {
    let mut options = Options::default();
    let mut colors = colors(profile);
    options.palette_map = Some(&mut colors);
    options.no_sort = true;
    options.title = clean(title);
    options.subtitle = Some(clean(subtitle));
    let lines = fold(profile);
    picture(&mut options, lines.iter().map(String::as_str))
}

/// A colour for each frame: hue by code origin, brightness by function.
fn colors(profile: &Profile) -> PaletteMap {
    let mut map = PaletteMap::default();
    for thread in &profile.threads {
        map.insert(clean(&thread.name), Color::new(170, 190, 215));
    }
    for function in &profile.functions {
        let (r, g, b) = match function.origin {
            CodeOrigin::Program => (235, 110, 95),
            CodeOrigin::Library => (235, 205, 110),
            CodeOrigin::Kernel => (240, 155, 60),
            CodeOrigin::Translated => (120, 200, 110),
            CodeOrigin::GuestKernel => (90, 145, 210),
            CodeOrigin::GuestUser => (110, 195, 205),
            CodeOrigin::Unknown => (190, 190, 190),
        };
        // The same function has the same colour in every flame graph.
        let own = function
            .name
            .bytes()
            .fold(7u8, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte))
            % 20;
        map.insert(frame(function), Color::new(r - own, g - own, b - own));
    }
    map
}

/// The difference: frames as wide as in `after`, red where their fraction grew, blue where it shrank. Both profiles are
/// scaled to the same number of samples.
///
/// # Errors
/// [`ProfileError::Drawing`] when there is nothing to draw.
pub fn draw_difference(
    before: &Profile,
    after: &Profile,
    title: &str,
) -> Result<String, ProfileError> {
    let mut both = Vec::new();
    let options = differential::Options {
        normalize: true,
        ..differential::Options::default()
    };
    let lines = |profile| Cursor::new(fold(profile).join("\n"));
    differential::from_readers(options, lines(before), lines(after), &mut both)
        .map_err(ProfileError::Drawing)?;
    let both = String::from_utf8_lossy(&both).into_owned();
    let mut lines: Vec<&str> = both.lines().collect();
    lines.sort_unstable();
    let mut options = Options::default();
    title.clone_into(&mut options.title);
    options.subtitle = Some("widths: after; red: more samples than before, blue: fewer".to_owned());
    options.no_sort = true;
    picture(&mut options, lines.into_iter())
}

/// The page's own colors, also where it is dark.
const STYLE: &str = "\
#search { opacity:.6; }
@media (prefers-color-scheme: dark) {
  svg > rect { fill:#1a2029; }
  #title, #subtitle, #details, #unzoom, #search, #matched { fill:#e6eaf1; }
}
</style>";
/// Narrower frames have no label, characters: two letters and two dots say nothing.
const SHORTEST_LABEL: u32 = 6;

fn picture<'a>(
    options: &mut Options<'_>,
    lines: impl Iterator<Item = &'a str>,
) -> Result<String, ProfileError> {
    // A comment in the SVG: its script is inferno's, whose licence has to be passed on with it.
    LICENCE.clone_into(&mut options.notes);
    options.text_truncate_direction = TextTruncateDirection::Right;
    options.bgcolors = Some(BackgroundColor::Flat(Color::new(255, 255, 255)));
    let mut svg = Vec::new();
    from_lines(options, lines, &mut svg).map_err(ProfileError::Drawing)?;
    let svg = String::from_utf8_lossy(&svg)
        .replacen("</style>", STYLE, 1)
        .replace(
            "w < 2 * known_font_width",
            &format!("w < {SHORTEST_LABEL} * known_font_width"),
        )
        .replace(
            "w < 2 * fontsize * fontwidth",
            &format!("w < {SHORTEST_LABEL} * fontsize * fontwidth"),
        );
    // The library knows many only.
    Ok(svg.replace(" (1 samples, ", " (1 sample, "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::path::Path;

    #[test]
    fn what_was_folded_unfolds() {
        let text = "CPU 0/TCG;start;[translated code]_[j];helper 3\nCPU 0/TCG;start;read_[k] 4\nqemu;main;q:f+0x10 1\n";
        let profile = unfold(text, Path::new("x.folded")).unwrap();
        assert_eq!(profile.total(), 8);
        let origins: Vec<CodeOrigin> = profile.functions.iter().map(|f| f.origin).collect();
        assert_eq!(
            origins[..4],
            [
                CodeOrigin::Program,
                CodeOrigin::Translated,
                CodeOrigin::Program,
                CodeOrigin::Kernel
            ]
        );
        assert!(!profile.functions.last().unwrap().named);
        assert_eq!(fold(&profile).join("\n") + "\n", text);
        let error = unfold("a;b 1\nnonsense\n", Path::new("x.folded"))
            .unwrap_err()
            .to_string();
        assert!(error.contains("x.folded: line 2"), "{error}");
    }

    proptest! {
        #[test]
        fn nothing_breaks_it(text in "[a-c; 0-9\n_\\[k\\]:+x]{0,300}") {
            if let Ok(profile) = unfold(&text, Path::new("x")) {
                fold(&profile);
            }
        }
    }

    #[test]
    fn names_are_in_the_picture_and_cannot_leave_it() {
        let profile = unfold(
            "qemu;main;<script>&\" 3\nqemu;main;kernel_[k] 1\n",
            Path::new("x"),
        )
        .unwrap();
        let svg = draw(&profile, "title", "subtitle").unwrap();
        assert!(
            svg.contains("&lt;script&gt;") && svg.contains("(3 samples, 75.00%"),
            "{svg}"
        );
        assert!(svg.contains("(1 sample, 25.00%"), "{svg}");
        assert!(svg.contains("CDDL-1.0"), "{svg}");
        assert!(!svg.contains("<script>&"));
        assert!(svg.contains("prefers-color-scheme") && svg.matches("w < 6 * ").count() == 2);
        let after = unfold("qemu;main;other 3\n", Path::new("x")).unwrap();
        let svg = draw_difference(&profile, &after, "difference").unwrap();
        assert!(svg.contains("other"), "{svg}");
        assert!(matches!(
            draw(&Profile::default(), "", ""),
            Err(ProfileError::Drawing(_))
        ));
    }
}
