//! Properties that every rendered report has.

/// No line is wider, without its colours, and none of plain text ends in blanks.
pub fn assert_within(text: &str, width: usize) {
    for line in text.lines() {
        // Each colour ends in "m".
        let visible: String = format!("m{line}")
            .split('\u{1b}')
            .map(|part| part.split_once('m').unwrap().1)
            .collect();
        let columns = textwrap::core::display_width(&visible);
        assert!(columns <= width, "{columns} columns of {width}: {line}");
        assert!(!line.ends_with(' '), "trailing blank: {line:?}");
    }
}

/// Every tag is closed in the right order; gives the number of elements.
pub fn assert_balanced(page: &str) -> usize {
    const VOID: &[&str] = &["meta", "br", "wbr", "!DOCTYPE"];
    let (mut open, mut elements, mut rest) = (Vec::new(), 0, page);
    while let Some((_, after)) = rest.split_once('<') {
        // Attribute values are quoted and escaped, so the next '>' outside quotes ends the tag.
        let mut quoted = false;
        let end = after.find(|c| {
            quoted ^= c == '"';
            c == '>' && !quoted
        });
        let (tag, next) = after.split_at(end.unwrap_or_else(|| panic!("a tag without end")));
        let name = tag.split_whitespace().next().unwrap();
        if let Some(name) = name.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "near {tag}");
        } else if !VOID.contains(&name) {
            elements += 1;
            open.push(name);
        }
        rest = next;
        if name == "style" {
            rest = &rest[rest.find("</style>").unwrap()..];
        }
    }
    assert!(open.is_empty(), "{open:?}");
    elements
}
