//! Elements of a domain's XML.

use super::error::TwinError;
use roxmltree::{Document, Node};

/// The domain of a document.
pub(super) fn domain<'a>(document: &'a Document<'a>) -> Result<Node<'a, 'a>, TwinError> {
    let root = document.root_element();
    match root.tag_name().name() {
        "domain" => Ok(root),
        // `virsh snapshot-dumpxml`, `virsh save-image-dumpxml` of old releases.
        _ => child(root, "domain").ok_or_else(|| TwinError::Xml(format!("its root is <{}>", root.tag_name().name()))),
    }
}

/// The first child of that name.
pub(super) fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children().find(|child| child.is_element() && child.tag_name().name() == name)
}

/// An element's text.
pub(super) fn text_of(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

/// A domain without the passwords that `virsh dumpxml --security-info` prints: what a recording keeps may be passed on.
pub(super) fn without_passwords(xml: &str) -> String {
    let Ok(document) = Document::parse(xml) else { return xml.to_owned() };
    let attributes = document.descendants().flat_map(|node| node.attributes());
    let all: Vec<_> = attributes.filter(|one| one.name() == "passwd").map(|one| one.range()).collect();
    let mut text = xml.to_owned();
    for range in all.into_iter().rev() {
        let start = text[..range.start].trim_end().len();
        text.replace_range(start..range.end, "");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_removed_and_nothing_else() {
        let xml =
            "<domain>\n  <graphics type='vnc' passwd='s&gt;cret' port='1'/>\n  <graphics passwd=\"x\"/>\n</domain>";
        let text = without_passwords(xml);
        assert_eq!(text, "<domain>\n  <graphics type='vnc' port='1'/>\n  <graphics/>\n</domain>");
        assert_eq!((without_passwords(&text), without_passwords("no xml")), (text, "no xml".to_owned()));
    }
}
