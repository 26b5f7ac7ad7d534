//! Elements of a domain's XML.

use super::error::TwinError;
use roxmltree::{Document, Node};

/// The domain of a document.
pub(crate) fn domain<'a>(document: &'a Document<'a>) -> Result<Node<'a, 'a>, TwinError> {
    let root = document.root_element();
    match root.tag_name().name() {
        "domain" => Ok(root),
        // `virsh snapshot-dumpxml`, `virsh save-image-dumpxml` of old releases.
        _ => child(root, "domain")
            .ok_or_else(|| TwinError::Xml(format!("its root is <{}>", root.tag_name().name()))),
    }
}

/// The first child of that name.
pub(crate) fn child<'a, 'input>(node: Node<'a, 'input>, name: &str) -> Option<Node<'a, 'input>> {
    node.children()
        .find(|child| child.is_element() && child.tag_name().name() == name)
}

/// An element's text.
pub(crate) fn text_of(node: Node<'_, '_>) -> String {
    node.text().unwrap_or_default().trim().to_owned()
}

/// A domain without its secrets, since what a recording keeps may be passed on: the passwords that `virsh dumpxml --security-info`
/// prints, the values of the cookies that `virsh dumpxml` prints of a disk behind HTTP.
pub(crate) fn without_secrets(xml: &str) -> String {
    let Ok(document) = Document::parse(xml) else {
        return xml.to_owned();
    };
    let mut all = Vec::new();
    for node in document.descendants() {
        let passwords = node
            .attributes()
            .filter(|one| one.name() == "passwd")
            .map(|one| one.range());
        all.extend(passwords.map(|range| xml[..range.start].trim_end().len()..range.end));
        if node.tag_name().name() == "cookie" {
            all.extend(node.children().map(|value| value.range()));
        }
    }
    all.sort_by_key(|range| range.start);
    let mut text = xml.to_owned();
    all.into_iter()
        .rev()
        .for_each(|range| text.replace_range(range, ""));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_removed_and_nothing_else() {
        let xml = "<domain>\n  <graphics type='vnc' passwd='s&gt;cret' port='1'/>\n  <graphics passwd=\"x\"/>\n</domain>";
        let text = without_secrets(xml);
        assert_eq!(
            text,
            "<domain>\n  <graphics type='vnc' port='1'/>\n  <graphics/>\n</domain>"
        );
        assert_eq!(
            (without_secrets(&text), without_secrets("no xml")),
            (text, "no xml".to_owned())
        );
        let cookies = "<domain><source><cookies>\n<cookie name='a'>s&amp;x<!-- s --></cookie>\n<cookie name='b'><![CDATA[s]]></cookie>\n</cookies></source>\
                       <graphics passwd='s'/></domain>";
        let text = without_secrets(cookies);
        let expected = "<domain><source><cookies>\n<cookie name='a'></cookie>\n<cookie name='b'></cookie>\n</cookies></source>\
                        <graphics/></domain>";
        assert_eq!(
            (without_secrets(&text), text.as_str()),
            (text.clone(), expected)
        );
    }
}
