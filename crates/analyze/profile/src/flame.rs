//! Flame graphs: pictures of a profile, and of the difference between two.

use crate::{ProfileError, fold};
use inferno::differential;
use inferno::flamegraph::color::{BackgroundColor, Color, PaletteMap};
use inferno::flamegraph::{Options, TextTruncateDirection, from_lines};
use std::io::Cursor;
use vmtax_model::samples::{CodeOrigin, Profile};

const LICENCE: &str = "The script in this file is part of inferno, licensed under CDDL-1.0 (https://opensource.org/license/cddl-1-0); \
     its source is the crate inferno. Modified by vmtax: labels need 6 characters of room.";

/// A flame graph as SVG, with search and zoom. Colours by code origin: the program red, libraries
/// yellow, the kernel orange, translated code green; the guest's own kernel blue, its programs cyan.
///
/// # Errors
/// [`ProfileError::Drawing`] when there is nothing to draw.
pub fn draw(profile: &Profile, title: &str, subtitle: &str) -> Result<String, ProfileError> {
    let mut options = Options::default();
    let mut colours = colours(profile);
    options.palette_map = Some(&mut colours);
    options.no_sort = true;
    options.title = fold::clean(title);
    options.subtitle = Some(fold::clean(subtitle));
    let lines = fold::fold(profile);
    picture(&mut options, lines.iter().map(String::as_str))
}

/// A colour for each frame: hue by code origin, brightness by function.
fn colours(profile: &Profile) -> PaletteMap {
    let mut map = PaletteMap::default();
    for thread in &profile.threads {
        map.insert(fold::clean(&thread.name), Color::new(170, 190, 215));
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
        map.insert(fold::frame(function), Color::new(r - own, g - own, b - own));
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
    let lines = |profile| Cursor::new(fold::fold(profile).join("\n"));
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

/// The page's own colours, also where it is dark.
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
    use std::path::Path;

    #[test]
    fn names_are_in_the_picture_and_cannot_leave_it() {
        let profile = fold::unfold(
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
        let after = fold::unfold("qemu;main;other 3\n", Path::new("x")).unwrap();
        let svg = draw_difference(&profile, &after, "difference").unwrap();
        assert!(svg.contains("other"), "{svg}");
        assert!(matches!(
            draw(&Profile::default(), "", ""),
            Err(ProfileError::Drawing(_))
        ));
    }
}
